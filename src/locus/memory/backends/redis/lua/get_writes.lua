#!lua flags=no-writes
-- include: shared/thread.lua
-- include: shared/lost.lua
-- include: shared/damage.lua
-- include: shared/tasks.lua

-- Pending writes of a checkpoint: names of tasks and their writes in turn.
--
-- ARGV: place of the checkpoint; a task, or empty for all of them.
local place, task = ARGV[1], ARGV[2]
if lost_writes() or damaged() then return {'DAMAGED'} end
local tasks, answer = tasks_of(place), {}
if not tasks then return {'BROKEN'} end
for _, name in ipairs(names_in(tasks)) do
  if task == '' or task == name then
    local text = call('HGET', w, 't' .. place .. name)
    if not text then return {'BROKEN'} end
    answer[#answer + 1] = name
    answer[#answer + 1] = text
  end
end
return answer
