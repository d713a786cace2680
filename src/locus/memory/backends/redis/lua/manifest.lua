#!lua flags=no-writes
-- include: shared/thread.lua
-- include: shared/lost.lua
-- include: shared/damage.lua
-- include: shared/lookup.lua

-- The number of a checkpoint, its entry, and its payload, which has the manifest; empty if there is none.
--
-- ARGV: the field of the checkpoint in h.
local seq, nothing = seq_of('', ARGV[1])
if not seq then return nothing end
return {seq, call('HGET', h, 'e' .. seq), call('HGET', p, seq)}
