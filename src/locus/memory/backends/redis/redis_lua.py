"""What the scripts that run inside Redis have in common.

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
