#!lua flags=no-writes
-- include: shared/thread.lua
-- include: shared/lookup.lua

-- One checkpoint with the runs that it shows something of: its number, entry, payload, 0 or 1 for "a later one exists
-- in this namespace", then names and texts of runs in turn. Empty if there is none.
--
-- ARGV: namespace; the checkpoint's field, or empty for the latest.
local ns = ARGV[1]
local seq = seq_of(ns, ARGV[2])
if not seq then return damaged() and {'DAMAGED'} or {} end
local payload = call('HGET', p, seq)
local answer = {seq, call('HGET', h, 'e' .. seq), payload, seq_of(ns, '') == seq and 0 or 1}
if not payload then return answer end
local wanted, seen = net(payload, 1), {}
local function hand_over(name, text)
  if seen[name] then return end
  seen[name] = true
  answer[#answer + 1] = name
  answer[#answer + 1] = text
end
for branch, run, skip, length in string.gmatch(wanted, '(%S+) (%d+) (%d+) (%d+);') do
  -- From the newest run backwards, each shows what no newer one has replaced.
  local number, limit = tonumber(run), skip + length
  skip = tonumber(skip)
  while number >= 0 and limit > skip do
    local fields = {}
    for at = number, math.max(0, number - 99), -1 do fields[#fields + 1] = branch .. ' ' .. at end
    for at, value in ipairs(call('HMGET', r, unpack(fields))) do
      -- The run that is named, even if it shows nothing: the reader has to know that it is there.
      if value and fields[at] == branch .. ' ' .. run then hand_over(fields[at], value) end
      if value and limit > skip then
        local start, size = string.match(value, '^(%d+) (%d+) ')
        -- A damaged run is handed over as if it showed everything, so that the reader reports it.
        if start then start, size = tonumber(start), tonumber(size) else start, size = skip, limit - skip end
        if start < limit then
          if math.max(start, skip) < math.min(limit, start + size) then hand_over(fields[at], value) end
          limit = start
        end
      end
    end
    number = number - #fields
  end
end
return answer
