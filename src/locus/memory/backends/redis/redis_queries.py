"""The scripts that look at threads and at the index, and those that keep the index and the search index tidy."""

from __future__ import annotations

from locus.memory.backends.redis.redis_lua import BUCKET, KEYS, Script

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
