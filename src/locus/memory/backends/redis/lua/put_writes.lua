#!lua
-- include: shared/thread.lua
-- include: shared/writes.lua

-- Stores the pending writes of one task. They expire with their thread. If the thread does not exist yet, they expire
-- by themselves unless it comes.
--
-- ARGV: place of the checkpoint, task, writes, time to live in milliseconds or empty, "1" to keep numbered writes.
put_writes(ARGV[1], ARGV[2], ARGV[3], ARGV[5] == '1')
local ends = call('PEXPIRETIME', h)
if ends > 0 then
  call('PEXPIREAT', w, ends)
elseif ends == -2 and ARGV[4] ~= '' then
  call('PEXPIRE', w, ARGV[4])
end
return 1
