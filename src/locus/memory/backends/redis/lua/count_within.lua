#!lua flags=no-writes
-- include: shared/bucket.lua

-- How many ids the bucket has in a range, up to a number.
--
-- ARGV: from, to (as ZRANGEBYLEX takes them), the number.
return #call('ZRANGEBYLEX', ids, ARGV[1], ARGV[2], 'LIMIT', 0, ARGV[3])
