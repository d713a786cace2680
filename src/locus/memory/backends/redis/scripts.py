"""The scripts that change a thread: saving, removing, copying, and pending writes.

COMMIT decides as `decisions.decide` does; the two are held against each other by a test.
"""

from __future__ import annotations

from locus.memory.backends.redis.redis_lua import KEYS, Script

_CHANGES = """
-- An entry is: time, namespace, metadata pairs, checkpoint id, rev, creation time, metadata, parent.
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

local function drop(id)
  local seqs = call('ZRANGE', s, 0, -1)
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
  return #seqs
end

local function drop_writes(place)
  local tasks, at = call('HGET', w, 'd' .. place), 1
  if not tasks then return end
  local fields, task = {'d' .. place}, nil
  while at <= #tasks do
    task, at = net(tasks, at)
    fields[#fields + 1] = 't' .. place .. task
  end
  in_portions(fields, 1000, function(a, b) call('HDEL', w, unpack(fields, a, b)) end)
end

-- What a removal was planned to be: see `redis_plans.Removal.arguments`.
local function remove(id, at, keep_writes)
  local function take()
    at = at + 1
    return ARGV[at - 1]
  end
  for _ = 1, take() do
    local seq, field, place = take(), take(), take()
    local entry = call('HGET', h, 'e' .. seq)
    if entry then forget_metadata(id, seq, entry) end
    call('HDEL', h, 'e' .. seq, field)
    call('ZREM', s, seq)
    call('HDEL', p, seq)
    forget_doc('c' .. seq)
    if not keep_writes then drop_writes(place) end
  end
  for _ = 1, take() do
    local run = take()
    call('HDEL', r, run)
    forget_doc('r' .. run)
  end
  for _ = 1, take() do
    local branch, number = take(), take()
    if number == '' then call('HDEL', r, branch) else call('HSET', r, branch, number) end
  end
  for _ = 1, take() do call('HSET', h, 'e' .. take(), take()) end
  for _ = 1, take() do
    local namespace, latest = take(), take()
    if latest == '' then call('HDEL', h, 'l' .. namespace) else call('HSET', h, 'l' .. namespace, latest) end
  end
  call('HINCRBY', h, 'v', 1)
end

-- Microseconds, and never the same twice in a bucket, whatever happens to the clock.
local function clock()
  local time = call('TIME')
  local now = time[1] * 1000000 + time[2]
  local last = call('ZREVRANGE', recent, 0, 0, 'WITHSCORES')[2]
  if last and tonumber(last) >= now then return tonumber(last) + 1, now end
  return now, now
end

local function keep_until(expires, is_new)
  if expires ~= '' then
    call('HSET', h, 'ttl', 1)
    for at = 1, 6 do call('PEXPIREAT', KEYS[at], expires) end
  elseif is_new or call('HDEL', h, 'ttl') == 1 then
    for at = 1, 6 do call('PERSIST', KEYS[at]) end
  end
end

-- What ended by itself is still in the index. Two tries for each save keep that below one half of it.
local function sweep(id, with_metadata)
  local stem = string.sub(h, 1, #h - #id)
  for _, other in ipairs(call('ZRANDMEMBER', ids, 2)) do
    if call('EXISTS', stem .. other) == 0 then
      call('ZREM', ids, other)
      call('ZREM', recent, other)
    end
  end
  if not with_metadata then return end
  for _, member in ipairs(call('ZRANDMEMBER', meta, 4)) do
    local other = string.match(member, '^%d+:()', 33)
    if call('EXISTS', stem .. string.sub(member, other)) == 0 then call('ZREM', meta, member) end
  end
end
"""

_COMMIT = """
local id, ns, cid, same_field, rev = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local base_field, base_rev = ARGV[6], ARGV[7]
local parent_mode, parent, parent_field = ARGV[8], ARGV[9], ARGV[10]
local latest_mode, expected, replaces, expires = ARGV[11], ARGV[12], ARGV[13], ARGV[14]
local entry, pairs_of, payload, planned = ARGV[15], ARGV[16], ARGV[17], ARGV[18]
local runs_at, count = 20, tonumber(ARGV[19])

local found = call('HMGET', h, 'seq', 'ttl', 'l' .. ns, same_field, base_field, parent_field)
local is_new = not found[1]
if is_new and damaged() then return {'DAMAGED'} end

local function parent_of(seq)
  local text, at, field = call('HGET', h, 'e' .. seq), 17, nil
  for _ = 1, 6 do field, at = net(text, at) end
  if at <= #text then return (net(text, at)) end
end

local same, same_rev = split(found[4])
if same and same_rev == rev then return {'REPEATED', same, parent_of(same) or false} end
if same and same_rev ~= replaces then return {'EXISTS'} end
local _, latest = split(found[3])
if latest_mode ~= '*' and latest ~= (latest_mode == '=' and expected or nil) then
  return {'CONFLICT', latest or false}
end
if base_field ~= '' then
  local _, found_rev = split(found[5])
  if found_rev ~= base_rev then return {'STALE_BASE'} end
end
for at = runs_at, runs_at + count * 3 - 1, 3 do
  local number = tonumber(ARGV[at + 1])
  if number > 0 then
    local tip = call('HGET', r, ARGV[at])
    if tip and tonumber(tip) >= number then return {'BRANCH_TAKEN'} end
  end
end
local chosen = nil
local named = parent_mode == '=' or parent_mode == '!' or parent_mode == '~'
if named and same and parent == cid then
  chosen = parent_of(same)
elseif parent_mode == '~' then
  if parent ~= cid then chosen = parent end
elseif named and found[6] then
  chosen = parent
elseif parent_mode == '!' then
  return {'NO_PARENT'}
elseif parent_mode ~= '-' then
  chosen = latest
  if same and latest == cid then chosen = parent_of(same) end
end
if same and planned ~= version() then return {'MOVED'} end

if same then remove(id, runs_at + count * 3, true) end
local seq = string.format('%.0f', (tonumber(found[1]) or 0) + 1)
local now, real = clock()
local at = string.format('%016.0f', now)
if chosen then entry = entry .. #chosen .. ':' .. chosen end
call('HSET', h, 'seq', seq, same_field, seq .. ' ' .. rev, 'e' .. seq, at .. entry, 'l' .. ns, seq .. ' ' .. cid)
call('ZADD', s, seq, seq)
call('HSET', p, seq, payload)
local runs = {}
for first = runs_at, runs_at + count * 3 - 1, 3 do
  local branch, number = ARGV[first], ARGV[first + 1]
  runs[#runs + 1] = branch .. ' ' .. number
  runs[#runs + 1] = ARGV[first + 2]
  if number ~= '0' then
    runs[#runs + 1] = branch
    runs[#runs + 1] = number
  end
end
set_all(r, runs)
if is_new then
  call('HSET', h, 'born', rev)
  call('ZADD', ids, 0, id)
end
call('ZADD', recent, now, id)
if pairs_of ~= '' then
  call('HSET', h, 'meta', 1)
  for first = 1, #pairs_of, 16 do
    call('ZADD', meta, 0, string.sub(pairs_of, first, first + 15) .. at .. seq .. ':' .. id)
  end
end
if expires ~= '' and tonumber(expires) * 1000 <= real then
  drop(id)
elseif is_new or expires ~= '' or found[2] then
  keep_until(expires, is_new)
end
if expires ~= '' then sweep(id, pairs_of ~= '') end
return {'COMMITTED', seq, chosen or false}
"""

_REMOVE = """
local id, planned = ARGV[1], ARGV[2]
if planned ~= '' and planned ~= version() then return -1 end
if ARGV[3] == 'all' then return drop(id) end
remove(id, 4, false)
return tonumber(ARGV[4])
"""

_PUT_WRITES = """
-- Writes of a task are: index, path, channel, value, each a netstring, one write after another.
local function each(text, work)
  local at = 1
  while at <= #text do
    local start, index = at, nil
    index, at = net(text, at)
    for _ = 1, 3 do
      local size, from = string.match(text, '^(%d+):()', at)
      at = from + size
    end
    work(index, string.sub(text, start, at - 1))
  end
end

local function put_writes(place, task, fresh, keep_numbered)
  local field, named, kept = 't' .. place .. task, {}, {}
  each(fresh, function(index) named[index] = true end)
  local old = call('HGET', w, field)
  if not old and fresh == '' then return end
  each(old or '', function(index, text)
    if not named[index] and (keep_numbered or string.sub(index, 1, 1) == '-') then kept[#kept + 1] = text end
  end)
  if not old then
    call('HSET', w, 'd' .. place, (call('HGET', w, 'd' .. place) or '') .. #task .. ':' .. task)
  end
  call('HSET', w, field, table.concat(kept) .. fresh)
end
"""

_PUT = """
put_writes(ARGV[1], ARGV[2], ARGV[3], ARGV[5] == '1')
local ends = call('PEXPIRETIME', h)
if ends > 0 then
  call('PEXPIREAT', w, ends)
elseif ends == -2 and ARGV[4] ~= '' then
  call('PEXPIRE', w, ARGV[4])
end
return 1
"""

_CREATE = """
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
for _ = 1, take() do
  local seq, field, rev, ns, cid, entry, pairs_of, payload =
    take(), take(), take(), take(), take(), take(), take(), take()
  local at = string.format('%016.0f', now)
  call('HSET', h, 'e' .. seq, at .. entry, field, seq .. ' ' .. rev, 'l' .. ns, seq .. ' ' .. cid)
  call('ZADD', s, seq, seq)
  call('HSET', p, seq, payload)
  if pairs_of ~= '' then call('HSET', h, 'meta', 1) end
  for first = 1, #pairs_of, 16 do
    call('ZADD', meta, 0, string.sub(pairs_of, first, first + 15) .. at .. seq .. ':' .. id)
  end
  now = now + 1
end
for _ = 1, take() do call('HSET', r, take(), take()) end
for _ = 1, take() do put_writes(take(), take(), take(), true) end
call('ZADD', ids, 0, id)
call('ZADD', recent, now, id)
keep_until(expires, true)
return 1
"""

_FORMAT = """
local key = KEYS[1]
if redis.call('EXISTS', key) == 0 then redis.call('HSET', key, 'version', ARGV[1], 'buckets', ARGV[2]) end
return 1
"""

COMMIT = Script(KEYS, _CHANGES, _COMMIT)
REMOVE = Script(KEYS, _CHANGES, _REMOVE, flags="allow-oom")
PUT_WRITES = Script(KEYS, _PUT_WRITES, _PUT)
CREATE = Script(KEYS, _CHANGES, _PUT_WRITES, _CREATE)
NOTE_FORMAT = Script(_FORMAT)
