#!lua
-- Writes the format version and the number of buckets, unless somebody was faster: all processes must agree on them,
-- so the first one decides. An older version is raised: what was stored in it can still be read.
local key = KEYS[1]
if redis.call('EXISTS', key) == 0 then
  redis.call('HSET', key, 'version', ARGV[1], 'buckets', ARGV[2])
elseif (tonumber(redis.call('HGET', key, 'version')) or math.huge) < tonumber(ARGV[1]) then
  redis.call('HSET', key, 'version', ARGV[1])
end
return 1
