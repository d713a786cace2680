#!lua flags=no-writes
-- include: shared/bucket.lua

-- A page of the bucket's threads that were committed to after a time, with the times of their last commits in turn,
-- oldest first.
--
-- ARGV: the time, how many.
local time = call('TIME')
local mark = tonumber(ARGV[1])
-- A mark in the future was left by a server whose clock went back since. Look at everything again.
if mark > time[1] * 1000000 + time[2] then mark = 0 end
return call('ZRANGEBYSCORE', recent, string.format('(%.0f', mark), '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[2])
