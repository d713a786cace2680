-- For scripts that tell a thread that has lost keys from a new one. Needs thread.lua and lost.lua.

-- The id of the thread: h is named like ids, with "h:" and the id in place of "ids".
local function thread_id()
  return string.sub(h, #ids)
end

-- True if the main key of a thread is missing though other keys exist, or though the index says that it should be
-- there: it was evicted, or removed by hand. Such a thread is not a new one, and must not be written to as if it were.
local function damaged()
  return call('EXISTS', h) == 0 and (call('EXISTS', s, p, r) > 0 or lost(thread_id()))
end

-- True if the thread's list of sequence numbers and its payloads are not the same many: one of them was lost.
local function is_incomplete()
  return call('ZCARD', s) ~= call('HLEN', p)
end

-- Notes in h that the thread has pending writes, and since which removal, so that they are missed if they are gone.
local function note_writes()
  if call('EXISTS', w) == 1 then call('HSET', h, 'w', call('HGET', h, 'v') or 0) end
end

-- True if the pending writes that were noted are gone. A removal may have taken them, by a version that notes nothing.
local function lost_writes()
  local found = call('HMGET', h, 'w', 'v')
  return found[1] and found[1] == (found[2] or '0') and call('EXISTS', w) == 0
end
