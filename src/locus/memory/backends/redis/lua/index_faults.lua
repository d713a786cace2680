#!lua flags=no-writes
-- include: shared/bucket.lua
-- include: shared/lost.lua

-- Looks through a page of the bucket's threads: the names on it, and how many threads exist that only one of the two
-- indexes has, or that have another time there than their newest checkpoint.
--
-- ARGV: "ids" or "recent", the index to look through; how many names to skip; how many to look at.
local names, faults = call('ZRANGE', ARGV[1] == 'ids' and ids or recent, ARGV[2], ARGV[2] + ARGV[3] - 1), 0
for _, name in ipairs(names) do
  if call('EXISTS', stem .. name) == 1 or lost(name) then
    local at, seq = call('ZSCORE', recent, name), call('HGET', stem .. name, 'seq')
    local entry = seq and call('HGET', stem .. name, 'e' .. seq)
    -- A copy that an older version made is a moment behind its newest checkpoint.
    local behind = at and entry and at - string.sub(entry, 1, 16) or 0
    if not at or call('ZSCORE', ids, name) ~= '0' or behind < 0 or behind > 1 then faults = faults + 1 end
  end
end
return {names, faults}
