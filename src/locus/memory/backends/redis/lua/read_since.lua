#!lua flags=no-writes
-- include: shared/thread.lua
-- include: shared/lost.lua
-- include: shared/damage.lua
-- include: shared/lookup.lua
-- include: shared/runs.lua

-- One checkpoint as READ answers it, without the runs that a reader has who holds another one. The fifth value is what
-- that one has stored as its extents, or nil if it is not there: then nothing is left out.
--
-- ARGV: namespace; the checkpoint's field, or empty for the latest; the field and the rev of the held one.
local seq, nothing = seq_of(ARGV[1], ARGV[2])
if not seq then return nothing end
local answer = checkpoint(ARGV[1], seq)
local payload = answer[3]
if not payload then return answer end
local held_seq, held_rev = split(call('HGET', h, ARGV[3]))
local held = held_rev == ARGV[4] and call('HGET', p, held_seq)
answer[5] = held and net(held, 1)
return hand_over(answer, extents_in(payload), held and extents_in(held) or new_extents())
