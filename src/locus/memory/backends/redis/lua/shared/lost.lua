-- For scripts that meet a thread without its main key. Needs `ids` and `ends` of the bucket.

-- True if a thread is gone though nobody has deleted it and its time has not come: Redis has evicted it, or somebody
-- has removed its keys. Nothing is known of threads that were last saved before `ends` was kept. An older version that
-- deletes a thread leaves it in `ends`, and takes it out of `ids`; if all of `ids` is gone, that was evicted, too.
local function lost(id)
  local at = call('HGET', ends, id)
  if not at then return false end
  if call('EXISTS', ids) == 1 and not call('ZRANGEBYLEX', ids, '[' .. id, '[' .. id)[1] then return false end
  local time = call('TIME')
  return at == '' or tonumber(at) > time[1] * 1000 + time[2] / 1000
end
