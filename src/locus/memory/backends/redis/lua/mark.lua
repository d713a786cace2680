#!lua flags=allow-oom
redis.call('HSET', KEYS[1], 'mark', '')
redis.call('HDEL', KEYS[1], 'mark')
return 1
