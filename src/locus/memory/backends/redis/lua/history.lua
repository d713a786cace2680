#!lua flags=no-writes
-- include: shared/thread.lua
-- include: shared/lost.lua
-- include: shared/damage.lua

-- Numbers and entries of a thread's checkpoints in turn, newest first. Before them stands what tells the first one:
-- the number of the latest of a namespace, 0 if it has none; or the entry of the one that was named, empty if that is
-- not there; or nothing, if all namespaces are asked for. `to_history` (schema.py) checks that nothing is missing.
--
-- ARGV: "*" for all namespaces; how entries of the namespace begin (after their time); a number to begin before, or
-- empty; how many.
local any, start, before, limit = ARGV[1] == '*', ARGV[2], ARGV[3], tonumber(ARGV[4])
if call('EXISTS', h) == 0 then return damaged() and {'DAMAGED'} or {} end
if call('EXISTS', s) == 0 then return {'DAMAGED'} end
if is_incomplete() then return {'BROKEN'} end
local function latest_of(ns)
  local found = call('HMGET', h, 'l' .. ns, 'L' .. ns)
  return split(found[1]) or found[2] and 'lost' or '0'
end
local first = ''
if before ~= '' then
  first = call('HGET', h, 'e' .. before) or ''
elseif not any then
  first = latest_of((net(start, 1)))
end
local answer, skip, portion, seen = {first}, 0, math.min(limit, 500), {}
local most, from = limit * 2 + 1, before == '' and '+inf' or '(' .. before
while #answer < most do
  local rows = call('ZREVRANGEBYSCORE', s, from, '-inf', 'WITHSCORES', 'LIMIT', skip, portion)
  local seqs, fields = {}, {}
  for at = 1, #rows, 2 do
    if tonumber(rows[at]) ~= tonumber(rows[at + 1]) then return {'BROKEN'} end
    seqs[#seqs + 1] = rows[at]
    fields[#fields + 1] = 'e' .. rows[at]
  end
  for at, entry in ipairs(get_all(h, fields)) do
    if not entry then return {'BROKEN'} end
    if any and before == '' then
      -- The first of each namespace is its latest.
      local ns = net(entry, 17)
      if not seen[ns] and latest_of(ns) ~= seqs[at] then return {'BROKEN'} end
      seen[ns] = true
    end
    if #answer < most and (any or string.sub(entry, 17, 16 + #start) == start) then
      answer[#answer + 1] = seqs[at]
      answer[#answer + 1] = entry
    end
  end
  if #seqs < portion then break end
  -- Some were of other namespaces. There may be many of those, so read on in larger steps.
  skip, portion = skip + portion, 500
end
return answer
