#!lua flags=no-writes
-- include: shared/thread.lua

-- A whole thread, as `ThreadContents` (remove.py) takes it: its counter, when it expires, sequence numbers, entries,
-- payloads, and everything in the hashes of runs and of pending writes. Empty if there is no thread.
local found = call('HMGET', h, 'seq', 'meta')
if not found[1] then return damaged() and {'DAMAGED'} or {} end
local seqs, fields = call('ZRANGE', s, 0, -1), {}
for at, seq in ipairs(seqs) do fields[at] = 'e' .. seq end
return {
  found[1], call('PEXPIRETIME', h), seqs, get_all(h, fields), get_all(p, seqs),
  call('HGETALL', r), call('HGETALL', w)
}
