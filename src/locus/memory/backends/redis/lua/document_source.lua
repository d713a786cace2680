#!lua flags=no-writes
-- include: shared/thread.lua

-- What a search document was made from: the payload of a checkpoint, or a run. Nil if it is gone.
--
-- ARGV: the name of the document.
local kind, name = string.sub(ARGV[1], 1, 1), string.sub(ARGV[1], 2)
return call('HGET', kind == 'c' and p or r, name)
