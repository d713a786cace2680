#!lua flags=no-writes
-- include: shared/thread.lua
-- include: shared/lost.lua
-- include: shared/damage.lua

-- Pending writes of a checkpoint: names of tasks and their writes in turn.
--
-- ARGV: place of the checkpoint; a task, or empty for all of them.
local place, task = ARGV[1], ARGV[2]
if lost_writes() or damaged() then return {'DAMAGED'} end
if task ~= '' then return {task, call('HGET', w, 't' .. place .. task) or ''} end
local tasks, at, names = call('HGET', w, 'd' .. place) or '', 1, {}
while at <= #tasks do
  task, at = net(tasks, at)
  names[#names + 1] = task
end
local answer = {}
for _, name in ipairs(names) do
  local text = call('HGET', w, 't' .. place .. name)
  if not text then return {'DAMAGED'} end
  answer[#answer + 1] = name
  answer[#answer + 1] = text
end
return answer
