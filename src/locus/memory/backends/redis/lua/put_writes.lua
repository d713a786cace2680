#!lua
-- include: shared/thread.lua
-- include: shared/lost.lua
-- include: shared/damage.lua
-- include: shared/tasks.lua
-- include: shared/writes.lua

-- Stores the pending writes of one task. They expire with their thread. If the thread does not exist yet, they expire
-- by themselves unless it comes.
--
-- ARGV: place of the checkpoint, task, writes, time to live in milliseconds or empty, "1" to keep numbered writes.
if damaged() then return {'DAMAGED'} end
if not put_writes(ARGV[1], ARGV[2], ARGV[3], ARGV[5] == '1') then return {'BROKEN'} end
local expires = call('PEXPIRETIME', h)
if expires ~= -2 then note_writes() end
if expires > 0 then
  call('PEXPIREAT', w, expires)
elseif expires == -2 and ARGV[4] ~= '' then
  call('PEXPIRE', w, ARGV[4])
end
return 1
