#!lua
-- Writes the format version and the number of buckets, unless somebody was faster: all processes must agree on them,
-- so the first one decides. An older version is raised: what was stored in it can still be read.
--
-- ARGV: version, number of buckets, the checksum of that number.
local key = KEYS[1]
if redis.call('EXISTS', key) == 0 then
  redis.call('HSET', key, 'version', ARGV[1], 'buckets', ARGV[2], 'check', ARGV[3])
elseif (tonumber(redis.call('HGET', key, 'version')) or math.huge) < tonumber(ARGV[1]) then
  redis.call('HSET', key, 'version', ARGV[1])
  if redis.call('HGET', key, 'buckets') == ARGV[2] then redis.call('HSET', key, 'check', ARGV[3]) end
end
return 1
