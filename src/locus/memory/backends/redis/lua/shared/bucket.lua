-- For scripts on the index of one bucket: its keys, in the order of `Layout.bucket_keys`. The main key of each thread
-- of the bucket is `stem` with the thread's id behind it.
local ids, recent, meta, stem, ends = unpack(KEYS)
local call = redis.call
