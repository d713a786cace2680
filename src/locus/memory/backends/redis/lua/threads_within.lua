#!lua flags=no-writes
-- include: shared/bucket.lua

-- A page of the bucket's thread ids, in the order of their bytes, and the time of each thread's last commit: empty if
-- the thread is gone, and later than all others if its newest checkpoint was removed.
--
-- ARGV: from, to (as ZRANGEBYLEX takes them), how many.
local names = call('ZRANGEBYLEX', ids, ARGV[1], ARGV[2], 'LIMIT', 0, ARGV[3])
local times = {}
for at, name in ipairs(names) do
  local seq = call('HGET', stem .. name, 'seq')
  local entry = seq and call('HGET', stem .. name, 'e' .. seq)
  times[at] = entry and string.sub(entry, 1, 16) or seq and '9999999999999999' or ''
end
return {names, times}
