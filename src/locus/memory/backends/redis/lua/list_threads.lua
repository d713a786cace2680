#!lua flags=no-writes
-- include: shared/bucket.lua

-- A page of the bucket's thread ids, in the order of their bytes, and for each 1 or 0: does the thread still exist?
-- One that expired is still in the index.
--
-- ARGV: from, to (as ZRANGEBYLEX takes them), how many.
local names = call('ZRANGEBYLEX', ids, ARGV[1], ARGV[2], 'LIMIT', 0, ARGV[3])
local there = {}
for at, name in ipairs(names) do there[at] = call('EXISTS', stem .. name) end
return {names, there}
