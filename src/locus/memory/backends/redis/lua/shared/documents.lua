-- For scripts that keep the search documents of a thread. Needs thread.lua.

-- The names of the documents that exist, and when they expire. That is when the thread was to expire at the time they
-- were written. The thread may have got more time since: if only the documents have expired, there are no names, and
-- no second value.
local function known_docs()
  local ends, time = tonumber(call('HGET', x, 'ends') or -1), call('TIME')
  if ends > 0 and ends <= time[1] * 1000 + time[2] / 1000 then return {}, nil end
  local known = {}
  for _, name in ipairs(call('HKEYS', x)) do known[name] = true end
  return known, ends
end
