#!lua flags=no-writes
-- include: shared/bucket.lua
-- include: shared/lost.lua

-- A page of the bucket's thread ids, in the order of their bytes, and for each 1 or 0: does the thread still exist?
-- One that expired is still in the index. One that was evicted is listed: whoever reads it is told.
--
-- ARGV: from, to (as ZRANGEBYLEX takes them), how many.
local names = call('ZRANGEBYLEX', ids, ARGV[1], ARGV[2], 'LIMIT', 0, ARGV[3])
local there = {}
for at, name in ipairs(names) do
  there[at] = (call('EXISTS', stem .. name) == 1 or lost(name)) and 1 or 0
end
return {names, there}
