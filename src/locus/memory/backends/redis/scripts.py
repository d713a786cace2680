"""The scripts that change a thread: saving, removing, copying, and pending writes.

COMMIT decides as `decisions.decide` does; the two are held against each other by a test.

The scripts that look at threads and at the index, and those that keep the index and the search index tidy.

What the scripts that run inside Redis have in common.

Each script is one atomic step on one thread, or on one bucket of threads. It touches nothing but the keys of one
bucket (see `redis_records`), so it stays in one slot of a cluster. The first line of each says that it neither writes
nor needs memory where that is so: then a replica and a full server carry it out, too. Texts of users pass through
them as bytes, and are never parsed.
"""

from __future__ import annotations

from hashlib import sha1

KEYS = """
local call = redis.call
local h, s, p, r, w, x, ids, recent, meta, doc = unpack(KEYS)

-- The text of a netstring ("5:hello") at a position, and the position after it.
local function net(text, at)
  local size, start = string.match(text, '^(%d+):()', at)
  return string.sub(text, start, start + size - 1), start + size
end

-- "12 rest" is split at its first space.
local function split(text)
  if not text then return nil end
  local at = string.find(text, ' ', 1, true)
  return string.sub(text, 1, at - 1), string.sub(text, at + 1)
end

-- Many fields or values at once: a call takes no more than a few thousand arguments.
local function in_portions(list, size, work)
  for first = 1, #list, size do work(first, math.min(first + size - 1, #list)) end
end

local function set_all(key, list)
  in_portions(list, 1000, function(a, b) call('HSET', key, unpack(list, a, b)) end)
end

local function get_all(key, fields)
  local found = {}
  in_portions(fields, 1000, function(a, b)
    for at, value in ipairs(call('HMGET', key, unpack(fields, a, b))) do found[a + at - 1] = value end
  end)
  return found
end

local function version()
  local found = call('HMGET', h, 'born', 'seq', 'v')
  return (found[1] or '') .. ' ' .. (found[2] or '') .. ' ' .. (found[3] or '')
end

-- Some keys of a thread without the others: they were evicted, or removed by hand.
local function damaged()
  return call('EXISTS', s, p, r) > 0 and call('EXISTS', h) == 0
end
"""
"""For scripts of one thread."""

BUCKET = """
local ids, recent, meta, stem = unpack(KEYS)
local call = redis.call
"""
"""For scripts of one bucket."""


class Script:
    """A script, and the name that the server knows it by once it has seen it."""

    __slots__ = ("sha", "text")

    def __init__(self, *parts: str, flags: str = "") -> None:
        self.text = f"#!lua{f' flags={flags}' if flags else ''}\n" + "".join(parts)
        self.sha = sha1(self.text.encode(), usedforsecurity=False).hexdigest()


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

_SURVEY = """
local seqs = call('ZRANGE', s, 0, -1)
local fields = {}
for at, seq in ipairs(seqs) do fields[at] = 'e' .. seq end
local entries, wants = get_all(h, fields), get_all(p, seqs)
for at, payload in ipairs(wants) do
  if payload then wants[at] = net(payload, 1) end
end
local names, headers = {}, {}
for _, name in ipairs(call('HKEYS', r)) do
  if string.find(name, ' ', 1, true) then names[#names + 1] = name end
end
for at, run in ipairs(get_all(r, names)) do headers[at] = string.match(run, '^%d+ %d+') or '' end
return {version(), seqs, entries, wants, names, headers}
"""

_FIND_ONE = """
local function seq_of(ns, field)
  local seq = split(call('HGET', h, field == '' and 'l' .. ns or field))
  return seq
end
"""

_READ = """
local ns = ARGV[1]
local seq = seq_of(ns, ARGV[2])
if not seq then return damaged() and {'DAMAGED'} or {} end
local payload = call('HGET', p, seq)
local answer = {seq, call('HGET', h, 'e' .. seq), payload, seq_of(ns, '') == seq and 0 or 1}
if not payload then return answer end
local wanted, seen = net(payload, 1), {}
for branch, run, skip, length in string.gmatch(wanted, '(%S+) (%d+) (%d+) (%d+);') do
  -- From the newest run backwards, each shows what no newer one has replaced.
  local number, limit = tonumber(run), skip + length
  skip = tonumber(skip)
  while number >= 0 and limit > skip do
    local fields = {}
    for at = number, math.max(0, number - 99), -1 do fields[#fields + 1] = branch .. ' ' .. at end
    for at, value in ipairs(call('HMGET', r, unpack(fields))) do
      if value and limit > skip then
        local start, size = string.match(value, '^(%d+) (%d+) ')
        if start then start, size = tonumber(start), tonumber(size) else start, size = skip, limit - skip end
        if start < limit then
          if math.max(start, skip) < math.min(limit, start + size) and not seen[fields[at]] then
            seen[fields[at]] = true
            answer[#answer + 1] = fields[at]
            answer[#answer + 1] = value
          end
          limit = start
        end
      end
    end
    number = number - #fields
  end
end
return answer
"""

_ENTRY = """
local seq = seq_of(ARGV[1], ARGV[2])
if not seq then return damaged() and {'DAMAGED'} or {} end
return {seq, call('HGET', h, 'e' .. seq)}
"""

_HISTORY = """
local any, start, before, limit = ARGV[1] == '*', ARGV[2], ARGV[3], tonumber(ARGV[4])
local answer, skip, portion = {}, 0, math.min(limit, 500)
if call('EXISTS', h) == 0 then return damaged() and {'DAMAGED'} or {} end
while #answer < limit * 2 do
  local seqs = call('ZREVRANGEBYSCORE', s, before, '-inf', 'LIMIT', skip, portion)
  local fields = {}
  for at, seq in ipairs(seqs) do fields[at] = 'e' .. seq end
  for at, entry in ipairs(get_all(h, fields)) do
    if not entry then return {'DAMAGED'} end
    if #answer < limit * 2 and (any or string.sub(entry, 17, 16 + #start) == start) then
      answer[#answer + 1] = seqs[at]
      answer[#answer + 1] = entry
    end
  end
  if #seqs < portion then break end
  skip, portion = skip + portion, 500
end
return answer
"""

_GET_WRITES = """
local place, task = ARGV[1], ARGV[2]
if task ~= '' then return {task, call('HGET', w, 't' .. place .. task) or ''} end
local tasks, at, names = call('HGET', w, 'd' .. place) or '', 1, {}
while at <= #tasks do
  task, at = net(tasks, at)
  names[#names + 1] = task
end
local answer = {}
for _, name in ipairs(names) do
  answer[#answer + 1] = name
  answer[#answer + 1] = call('HGET', w, 't' .. place .. name) or ''
end
return answer
"""

_DUMP = """
local found = call('HMGET', h, 'seq', 'meta')
if not found[1] then return damaged() and {'DAMAGED'} or {} end
local seqs, fields = call('ZRANGE', s, 0, -1), {}
for at, seq in ipairs(seqs) do fields[at] = 'e' .. seq end
return {
  found[1], call('PEXPIRETIME', h), seqs, get_all(h, fields), get_all(p, seqs),
  call('HGETALL', r), call('HGETALL', w)
}
"""

_LIST = """
local names = call('ZRANGEBYLEX', ids, ARGV[1], ARGV[2], 'LIMIT', 0, ARGV[3])
local there = {}
for at, name in ipairs(names) do there[at] = call('EXISTS', stem .. name) end
return {names, there}
"""

_RECENT = """
return call('ZREVRANGEBYSCORE', recent, ARGV[1], '-inf', 'WITHSCORES', 'LIMIT', 0, ARGV[2])
"""

_FIND = """
local members = call('ZREVRANGEBYLEX', meta, ARGV[2], ARGV[1], 'LIMIT', 0, ARGV[3])
local entries = {}
for at, member in ipairs(members) do
  local seq, after = string.match(member, '^(%d+):()', 33)
  local entry = call('HGET', stem .. string.sub(member, after), 'e' .. seq)
  entries[at] = entry and string.sub(entry, 1, 16) == string.sub(member, 17, 32) and entry
end
return {members, entries}
"""

_STALE = """
local members, stale = call('ZRANGEBYLEX', meta, ARGV[1], '+', 'LIMIT', 0, ARGV[2]), {}
for _, member in ipairs(members) do
  local seq, after = string.match(member, '^(%d+):()', 33)
  if call('HEXISTS', stem .. string.sub(member, after), 'e' .. seq) == 0 then stale[#stale + 1] = member end
end
return {members[#members] or '', stale}
"""

_CLEAN = """
for at = 2, ARGV[1] + 1 do
  if call('EXISTS', stem .. ARGV[at]) == 0 then
    call('ZREM', ids, ARGV[at])
    call('ZREM', recent, ARGV[at])
  end
end
for at = ARGV[1] + 2, #ARGV do
  local seq, after = string.match(ARGV[at], '^(%d+):()', 33)
  local entry = call('HGET', stem .. string.sub(ARGV[at], after), 'e' .. seq)
  if not entry or string.sub(entry, 1, 16) ~= string.sub(ARGV[at], 17, 32) then call('ZREM', meta, ARGV[at]) end
end
return 1
"""

_CHANGED = """
local time = call('TIME')
local mark = tonumber(ARGV[1])
if mark > time[1] * 1000000 + time[2] then mark = 0 end
return call('ZRANGEBYSCORE', recent, string.format('(%.0f', mark), '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[2])
"""

_DOCS = """
-- The documents end with the thread as it was when they were written; it may have got more time since.
local function known_docs()
  local ends, time = tonumber(call('HGET', x, 'ends') or -1), call('TIME')
  if ends > 0 and ends <= time[1] * 1000 + time[2] / 1000 then return {}, nil end
  local known = {}
  for _, name in ipairs(call('HKEYS', x)) do known[name] = true end
  return known, ends
end
"""

_PENDING = """
local known, missing, limit = known_docs(), {}, tonumber(ARGV[1])
for _, seq in ipairs(call('ZRANGE', s, 0, -1)) do
  if #missing < limit * 2 and not known['c' .. seq] then
    local _, at = net(call('HGET', p, seq), 1)
    local head = net(call('HGET', p, seq), at)
    local entry, metadata = call('HGET', h, 'e' .. seq), nil
    at = 17
    for _ = 1, 6 do metadata, at = net(entry, at) end
    missing[#missing + 1] = 'c' .. seq
    missing[#missing + 1] = '[' .. head .. ',' .. metadata .. ']'
  end
end
for _, name in ipairs(call('HKEYS', r)) do
  if #missing < limit * 2 and string.find(name, ' ', 1, true) and not known['r' .. name] then
    local _, items = split(call('HGET', r, name))
    _, items = split(items)
    missing[#missing + 1] = 'r' .. name
    missing[#missing + 1] = items
  end
end
return missing
"""

_INDEX = """
local known, ends_before = known_docs()
if not ends_before then call('UNLINK', x) end
local ends = call('PEXPIRETIME', h)
if ends == -2 then return 0 end
for at = 1, #ARGV, 2 do
  local name = ARGV[at]
  local kind, rest = string.sub(name, 1, 1), string.sub(name, 2)
  if call('HEXISTS', kind == 'c' and p or r, rest) == 1 then
    call('HSET', doc .. name, 'words', ARGV[at + 1])
    call('HSET', x, name, 1)
    if ends > 0 then call('PEXPIREAT', doc .. name, ends) end
  end
end
if ends_before ~= ends then
  for name in pairs(known) do
    if ends > 0 then call('PEXPIREAT', doc .. name, ends) else call('PERSIST', doc .. name) end
  end
end
call('HSET', x, 'ends', ends)
if ends > 0 then call('PEXPIREAT', x, ends) end
return 1
"""

_TEXT = """
local kind, name = string.sub(ARGV[1], 1, 1), string.sub(ARGV[1], 2)
return call('HGET', kind == 'c' and p or r, name)
"""

SURVEY = Script(KEYS, _SURVEY, flags="no-writes")
READ = Script(KEYS, _FIND_ONE, _READ, flags="no-writes")
ENTRY = Script(KEYS, _FIND_ONE, _ENTRY, flags="no-writes")
HISTORY = Script(KEYS, _HISTORY, flags="no-writes")
GET_WRITES = Script(KEYS, _GET_WRITES, flags="no-writes")
DUMP = Script(KEYS, _DUMP, flags="no-writes")

LIST = Script(BUCKET, _LIST, flags="no-writes")
RECENT = Script(BUCKET, _RECENT, flags="no-writes")
FIND = Script(BUCKET, _FIND, flags="no-writes")
STALE = Script(BUCKET, _STALE, flags="no-writes")
CLEAN = Script(BUCKET, _CLEAN, flags="allow-oom")

CHANGED = Script(BUCKET, _CHANGED, flags="no-writes")
PENDING = Script(KEYS, _DOCS, _PENDING, flags="no-writes")
INDEX = Script(KEYS, _DOCS, _INDEX)
TEXT = Script(KEYS, _TEXT, flags="no-writes")
