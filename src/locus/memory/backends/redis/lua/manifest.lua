#!lua flags=no-writes
-- include: shared/thread.lua
-- include: shared/lost.lua
-- include: shared/damage.lua

-- The rev of a checkpoint and its payload, which has the manifest; empty if there is none.
--
-- ARGV: the field of the checkpoint in h.
local seq, rev = split(call('HGET', h, ARGV[1]))
if not seq then return damaged() and {'DAMAGED'} or {} end
return {rev, call('HGET', p, seq)}
