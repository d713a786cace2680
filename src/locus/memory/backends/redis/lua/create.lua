#!lua
-- include: shared/thread.lua
-- include: shared/lost.lua
-- include: shared/damage.lua
-- include: shared/changes.lua
-- include: shared/tasks.lua
-- include: shared/writes.lua

-- Creates a thread from the checkpoints, runs and pending writes of another. Returns 1 if this call created it (now,
-- or when it was sent before: `born` tells), 0 if a thread of that id exists, and -1 if parts of one do.
--
-- ARGV: thread id, last sequence number, expiry or empty, born, and the three groups that
-- `ThreadContents.copy_arguments` (remove.py) makes, each behind the number of its rows.
local id, last_seq, expires, born = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
if call('HGET', h, 'born') == born then return 1 end
if call('EXISTS', h) == 1 then return 0 end
if damaged() then return -1 end
local position = 5
local function take()
  position = position + 1
  return ARGV[position - 1]
end
local now = clock()
call('HSET', h, 'seq', last_seq, 'born', born)
-- Checkpoints, oldest first, so that the last one of a namespace stays its latest.
for _ = 1, take() do
  local seq, field, rev, ns, cid, entry, link, pairs_of, payload =
    take(), take(), take(), take(), take(), take(), take(), take(), take()
  local at = string.format('%016.0f', now)
  call('HSET', h, 'e' .. seq, linked(seq, at, entry, link), field, seq .. ' ' .. rev, proof(field), '',
    'l' .. ns, seq .. ' ' .. cid, 'L' .. ns, '')
  call('ZADD', s, seq, seq)
  call('HSET', p, seq, payload)
  if pairs_of ~= '' then call('HSET', h, 'meta', 1) end
  for first = 1, #pairs_of, 16 do
    call('ZADD', meta, 0, string.sub(pairs_of, first, first + 15) .. at .. seq .. ':' .. id)
  end
  now = now + 1
end
-- Runs, and the newest number of each branch.
for _ = 1, take() do call('HSET', r, take(), take()) end
-- Pending writes by place and task.
for _ = 1, take() do put_writes(take(), take(), take(), true) end
note_writes()
call('ZADD', ids, 0, id)
call('ZADD', recent, now - 1, id)
keep_until(expires, true)
return 1
