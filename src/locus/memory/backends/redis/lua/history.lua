#!lua flags=no-writes
-- include: shared/thread.lua
-- include: shared/lost.lua
-- include: shared/damage.lua

-- Numbers and entries of a thread's checkpoints in turn, newest first.
--
-- ARGV: "*" for all namespaces; how entries of the namespace begin (after their time); from where; how many.
local any, start, before, limit = ARGV[1] == '*', ARGV[2], ARGV[3], tonumber(ARGV[4])
local answer, skip, portion = {}, 0, math.min(limit, 500)
if call('EXISTS', h) == 0 then return damaged() and {'DAMAGED'} or {} end
if call('EXISTS', s) == 0 then return {'DAMAGED'} end
while #answer < limit * 2 do
  local seqs = call('ZREVRANGEBYSCORE', s, before, '-inf', 'LIMIT', skip, portion)
  local fields = {}
  for at, seq in ipairs(seqs) do fields[at] = 'e' .. seq end
  for at, entry in ipairs(get_all(h, fields)) do
    if not entry then return {'DAMAGED'} end
    if #answer < limit * 2 and (any or string.sub(entry, 17, 16 + #start) == start) then
      answer[#answer + 1] = seqs[at]
      answer[#answer + 1] = entry
    end
  end
  if #seqs < portion then break end
  -- Some were of other namespaces. There may be many of those, so read on in larger steps.
  skip, portion = skip + portion, 500
end
return answer
