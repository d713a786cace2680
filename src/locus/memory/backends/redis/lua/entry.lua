#!lua flags=no-writes
-- include: shared/thread.lua
-- include: shared/lost.lua
-- include: shared/damage.lua
-- include: shared/lookup.lua

-- The number and the entry of one checkpoint; empty if there is none.
--
-- ARGV: namespace; the checkpoint's field, or empty for the latest.
local seq, nothing = seq_of(ARGV[1], ARGV[2])
if not seq then return nothing end
return {seq, call('HGET', h, 'e' .. seq)}
