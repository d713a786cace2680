#!lua flags=allow-oom
-- include: shared/thread.lua
-- include: shared/lost.lua
-- include: shared/damage.lua
-- include: shared/changes.lua
-- include: shared/writes.lua

-- Removes the pending writes of those checkpoints that are not there, and returns how many writes.
--
-- ARGV: places of checkpoints.
local removed = 0
for _, place in ipairs(ARGV) do
  local tasks = call('HEXISTS', h, 'i' .. place) == 0 and call('HGET', w, 'd' .. place)
  if tasks then
    local at, task = 1, nil
    while at <= #tasks do
      task, at = net(tasks, at)
      each(call('HGET', w, 't' .. place .. task) or '', function() removed = removed + 1 end)
    end
    drop_writes(place)
  end
end
-- Else they would be missed (see `lost_writes`).
if call('EXISTS', w) == 0 then call('HDEL', h, 'w') end
return removed
