#!lua flags=no-writes
-- include: shared/bucket.lua

-- A page of the bucket's thread ids and the times of their last commits in turn, newest first.
--
-- ARGV: from which time on backwards, how many.
return call('ZREVRANGEBYSCORE', recent, ARGV[1], '-inf', 'WITHSCORES', 'LIMIT', 0, ARGV[2])
