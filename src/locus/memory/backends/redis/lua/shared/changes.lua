-- For scripts that save, remove or create checkpoints. Needs thread.lua, lost.lua and damage.lua.

-- An entry as it is stored: with its time, with what it is linked to ("<number of the one before it> <parent>", or the
-- number alone), and with a seal over both and over its number. The text of its writer ends with a checksum of its own.
local function linked(seq, at, text, link)
  local sum = string.match(string.sub(text, -11), '%d+$')
  local proven = seq .. ' ' .. at .. ' ' .. sum .. ' ' .. link
  return at .. text .. #link .. ':' .. link .. '8:' .. seal(proven)
end

-- Takes a checkpoint out of the metadata index. Its entry is: a time of 16 digits, then as netstrings the namespace,
-- metadata pairs, checkpoint id, rev, creation time, metadata and what it is linked to.
local function forget_metadata(id, seq, entry)
  local _, at = net(entry, 17)
  local pairs_of = net(entry, at)
  for first = 1, #pairs_of, 16 do
    call('ZREM', meta, string.sub(pairs_of, first, first + 15) .. string.sub(entry, 1, 16) .. seq .. ':' .. id)
  end
end

local function forget_doc(name)
  if call('HDEL', x, name) == 1 then call('UNLINK', doc .. name) end
end

-- Removes the whole thread, and returns how many checkpoints it had.
local function drop(id)
  local seqs = call('ZRANGE', s, 0, -1)
  -- The flag is set with the first metadata. Without it, no entry needs to be read.
  if call('HEXISTS', h, 'meta') == 1 then
    for _, seq in ipairs(seqs) do
      local entry = call('HGET', h, 'e' .. seq)
      if entry then forget_metadata(id, seq, entry) end
    end
  end
  for _, name in ipairs(call('HKEYS', x)) do call('UNLINK', doc .. name) end
  call('UNLINK', h, s, p, r, w, x)
  call('ZREM', ids, id)
  call('ZREM', recent, id)
  call('HDEL', ends, id)
  return #seqs
end

local function drop_writes(place)
  local tasks, at = call('HGET', w, 'd' .. place), 1
  if not tasks then return end
  local fields, task = {'d' .. place, 'D' .. place}, nil
  while at <= #tasks do
    task, at = net(tasks, at)
    fields[#fields + 1] = 't' .. place .. task
  end
  in_portions(fields, 1000, function(a, b) call('HDEL', w, unpack(fields, a, b)) end)
end

-- Carries out a planned removal. The plan starts at ARGV[at] and has the five groups that
-- `ThreadOutline.removal_arguments` (remove.py) makes, each behind the number of its rows.
local function remove(id, at, keep_writes)
  local function take()
    at = at + 1
    return ARGV[at - 1]
  end
  -- Checkpoints to remove.
  for _ = 1, take() do
    local seq, field, place = take(), take(), take()
    local entry = call('HGET', h, 'e' .. seq)
    if entry then forget_metadata(id, seq, entry) end
    call('HDEL', h, 'e' .. seq, field, proof(field))
    call('ZREM', s, seq)
    call('HDEL', p, seq)
    forget_doc('c' .. seq)
    if not keep_writes then drop_writes(place) end
  end
  -- Runs that no remaining checkpoint needs.
  for _ = 1, take() do
    local run = take()
    call('HDEL', r, run)
    forget_doc('r' .. run)
  end
  -- The newest remaining run of each branch that lost one.
  for _ = 1, take() do
    local branch, number = take(), take()
    if number == '' then call('HDEL', r, branch) else call('HSET', r, branch, number) end
  end
  -- Entries of checkpoints that lost their parent or the one before them, with new links.
  for _ = 1, take() do call('HSET', h, 'e' .. take(), take()) end
  -- The latest remaining checkpoint of each namespace that lost one.
  for _ = 1, take() do
    local namespace, latest = take(), take()
    if latest == '' then
      call('HDEL', h, 'l' .. namespace, 'L' .. namespace)
    else
      call('HSET', h, 'l' .. namespace, latest)
    end
  end
  call('HINCRBY', h, 'v', 1)
  note_writes()
end

-- The time of a commit in microseconds, and the server's time. The first is never the same twice in a bucket, even
-- if the clock stands still or goes back: the order of commits must not depend on it.
local function clock()
  local time = call('TIME')
  local now = time[1] * 1000000 + time[2]
  local last = call('ZREVRANGE', recent, 0, 0, 'WITHSCORES')[2]
  if last and tonumber(last) >= now then return tonumber(last) + 1, now end
  return now, now
end

-- Gives all keys of the thread the same time to live, or none. Pending writes may exist before the thread does, with
-- a time to live of their own; that is why a new thread persists its keys, too.
local function keep_until(expires, is_new)
  call('HSET', ends, thread_id(), expires)
  if expires ~= '' then
    call('HSET', h, 'ttl', 1)
    for at = 1, 6 do call('PEXPIREAT', KEYS[at], expires) end
  elseif is_new or call('HDEL', h, 'ttl') == 1 then
    for at = 1, 6 do call('PERSIST', KEYS[at]) end
  end
end

-- Threads that expired are still in the index, because Redis does not tell it. Two samples for each save keep them
-- below one half of it, even if nobody ever lists or vacuums.
local function sweep(id, with_metadata)
  local stem = string.sub(h, 1, #h - #id)
  for _, other in ipairs(call('ZRANDMEMBER', ids, 2)) do
    if call('EXISTS', stem .. other) == 0 and not lost(other) then
      call('ZREM', ids, other)
      call('ZREM', recent, other)
      call('HDEL', ends, other)
    end
  end
  if not with_metadata then return end
  for _, member in ipairs(call('ZRANDMEMBER', meta, 4)) do
    local other = string.match(member, '^%d+:()', 33)
    if call('EXISTS', stem .. string.sub(member, other)) == 0 then call('ZREM', meta, member) end
  end
end
