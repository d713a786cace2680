#!lua flags=no-writes
-- include: shared/thread.lua
-- include: shared/lost.lua
-- include: shared/damage.lua

-- Looks through some of a thread's checkpoints: how many there are; how many of them are not found by their ids, or are
-- newer than the latest of their namespace; and how many pairs of their metadata the index of the bucket does not have.
--
-- ARGV: how many to skip; how many to look at.
local seqs = call('ZRANGE', s, ARGV[1], ARGV[1] + ARGV[2] - 1)
local lost_ways, lost_pairs = 0, 0

-- The namespace, the metadata pairs and the id: the first three netstrings behind the time. Nil if it is damaged.
local function about(entry)
  local found, at = {}, 17
  for part = 1, 3 do
    local size, start = string.match(entry, '^(%d+):()', at)
    if not size then return nil end
    found[part], at = string.sub(entry, start, start + size - 1), start + size
  end
  return unpack(found)
end

for _, seq in ipairs(seqs) do
  local entry = call('HGET', h, 'e' .. seq) or ''
  local ns, pairs_of, id = about(entry)
  if ns then
    local found = call('HMGET', h, 'i' .. #ns .. ':' .. ns .. #id .. ':' .. id, 'l' .. ns)
    local last = tonumber((split(found[2]))) or 0
    if split(found[1]) ~= seq or last < tonumber(seq) then lost_ways = lost_ways + 1 end
    for first = 1, #pairs_of, 16 do
      local member = string.sub(pairs_of, first, first + 15) .. string.sub(entry, 1, 16) .. seq .. ':' .. thread_id()
      if call('ZSCORE', meta, member) ~= '0' then lost_pairs = lost_pairs + 1 end
    end
  end
end
return {#seqs, lost_ways, lost_pairs}
