#!lua flags=no-writes
-- include: shared/thread.lua
-- include: shared/lost.lua
-- include: shared/damage.lua
-- include: shared/lookup.lua
-- include: shared/runs.lua

-- One checkpoint with the runs that it shows something of, as runs.lua says; empty if there is none.
--
-- ARGV: namespace; the checkpoint's field, or empty for the latest.
local seq, nothing = seq_of(ARGV[1], ARGV[2])
if not seq then return nothing end
local answer = checkpoint(ARGV[1], seq)
local payload = answer[3]
if not payload then return answer end
return hand_over(answer, extents_in(payload), new_extents())
