-- For scripts on one thread: its keys, in the order of `Layout.thread_keys`, and how to read what they hold.
--
-- The keys are named as in the layout (schema.py):
--   h  counter, latest of each namespace, checkpoints by id, entries     ids     ids of the bucket's threads
--   s  sequence numbers                                                  recent  threads by their last commit
--   p  payloads                                                          meta    metadata pairs
--   r  runs                                                              doc     how the names of search documents begin
--   w  pending writes                                                    ends    when threads expire
--   x  which search documents exist
local call = redis.call
local h, s, p, r, w, x, ids, recent, meta, doc, ends = unpack(KEYS)

-- The text of a netstring ("5:hello") at a position, and the position after it.
local function net(text, at)
  local size, start = string.match(text, '^(%d+):()', at)
  return string.sub(text, start, start + size - 1), start + size
end

-- Splits "12 rest" at its first space. Without one, there is no second part.
local function split(text)
  if not text then return nil end
  local at = string.find(text, ' ', 1, true)
  if not at then return text end
  return string.sub(text, 1, at - 1), string.sub(text, at + 1)
end

-- A short digest of a text that a script has written. The reader makes it again.
local function seal(text)
  return string.sub(redis.sha1hex(text), 1, 8)
end

-- The field that says that another one of h exists, so that its loss shows: "L..." for "l...", "I..." for "i...".
local function proof(field)
  return string.upper(string.sub(field, 1, 1)) .. string.sub(field, 2)
end

-- The parent in an entry, if it has one. An entry is: a time of 16 digits, and netstrings: six texts, what it is linked
-- to ("<number of the one before it> <parent>"), and a seal. Older versions wrote the parent alone, and no seal.
local function parent_in(entry)
  local at, link = 17, nil
  for _ = 1, 6 do
    if at > #entry then return nil end
    local size, start = string.match(entry, '^(%d+):()', at)
    at = start + size
  end
  if at > #entry then return nil end
  link, at = net(entry, at)
  if at > #entry then return link end
  local _, parent = split(link)
  return parent
end

-- Works through a long list in portions, because `unpack` puts no more than a few thousand values on Lua's stack.
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

-- Changes with every commit and every removal, and differs for a thread that was deleted and created again. A plan
-- made from this version may be carried out as long as the version is the same.
local function version()
  local found = call('HMGET', h, 'born', 'seq', 'v')
  return (found[1] or '') .. ' ' .. (found[2] or '') .. ' ' .. (found[3] or '')
end
