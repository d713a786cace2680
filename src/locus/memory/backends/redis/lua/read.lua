#!lua flags=no-writes
-- include: shared/thread.lua
-- include: shared/lost.lua
-- include: shared/damage.lua
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
local last_seq, listed = tonumber(call('HGET', h, 'seq')), nil

-- The names of a branch's runs up to a number, newest first, as they are in r.
local function runs_there(branch, newest)
  if not listed then
    listed = {}
    for _, name in ipairs(call('HKEYS', r)) do
      local owner, number = string.match(name, '^(%S+) (%d+)$')
      if owner then
        listed[owner] = listed[owner] or {}
        table.insert(listed[owner], {tonumber(number), name})
      end
    end
    for _, list in pairs(listed) do table.sort(list, function(one, other) return one[1] > other[1] end) end
  end
  local names = {}
  for _, run in ipairs(listed[branch] or {}) do
    if run[1] <= newest then names[#names + 1] = run[2] end
  end
  return names
end

local function hand_over(name, text)
  if seen[name] then return end
  seen[name] = true
  answer[#answer + 1] = name
  answer[#answer + 1] = text
end
for branch, run, skip, length in string.gmatch(wanted, '(%S+) (%d+) (%d+) (%d+);') do
  -- From the newest run backwards, each shows what no newer one has replaced.
  local newest, limit = math.min(tonumber(run), tonumber(call('HGET', r, branch) or 0)), skip + length
  skip = tonumber(skip)
  -- Mostly a branch has every number, and its runs can be counted down. One with far more than the thread has had
  -- checkpoints was numbered by somebody else: that number must not bound a loop, so look which runs are there.
  local names = newest > 2 * (last_seq or 0) + 1000 and runs_there(branch, newest)
  local last, first = names and #names or newest + 1, 1
  while first <= last and limit > skip do
    local fields = {}
    for at = first, math.min(last, first + 99) do
      fields[#fields + 1] = names and names[at] or branch .. ' ' .. (newest + 1 - at)
    end
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
    first = first + #fields
  end
end
return answer
