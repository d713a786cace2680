#!lua flags=allow-oom
-- include: shared/thread.lua
-- include: shared/lost.lua
-- include: shared/damage.lua
-- include: shared/changes.lua

-- Removes a thread, or some of its checkpoints as planned. Runs on a server that is out of memory, too, because that
-- is how to relieve it. Returns the number of checkpoints removed, or -1 if the thread is no longer at the version
-- that was planned for.
--
-- ARGV: thread id; the version, or empty for any; "all", or "some" and the plan.
local id, planned = ARGV[1], ARGV[2]
if planned ~= '' and planned ~= version() then return -1 end
if ARGV[3] == 'all' then return drop(id) end
remove(id, 4, false)
-- The plan begins with the number of checkpoints in it.
return tonumber(ARGV[4])
