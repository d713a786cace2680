#!lua flags=no-writes
-- include: shared/thread.lua
-- include: shared/lost.lua
-- include: shared/damage.lua
-- include: shared/run_headers.lua

-- A whole thread, as `ThreadContents` (remove.py) takes it: its counter, when it expires, sequence numbers, entries,
-- payloads, and everything in the hashes of runs and of pending writes. Empty if there is no thread. The last is the
-- version of a thread with too many runs, which are read in portions, then.
local last_seq = call('HGET', h, 'seq')
if not last_seq then return damaged() and {'DAMAGED'} or {} end
local seqs, fields = call('ZRANGE', s, 0, -1), {}
if #seqs == 0 then return {'DAMAGED'} end
if is_incomplete() then return {'BROKEN'} end
for at, seq in ipairs(seqs) do fields[at] = 'e' .. seq end
local many = has_many_runs()
return {
  last_seq, call('PEXPIRETIME', h), seqs, get_all(h, fields), get_all(p, seqs),
  many and {} or call('HGETALL', r), call('HGETALL', w), many and version() or ''
}
