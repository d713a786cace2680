#!lua
-- include: shared/thread.lua
-- include: shared/documents.lua

-- Writes search documents of a thread, and lets all that it has expire with it. Skips what was removed from the
-- thread since its text was read.
--
-- ARGV: names of documents and their words in turn.
local known, ends_before = known_docs()
if not ends_before then call('UNLINK', x) end
local ends = call('PEXPIRETIME', h)
if ends == -2 then return 0 end
for at = 1, #ARGV, 2 do
  local name = ARGV[at]
  local kind, rest = string.sub(name, 1, 1), string.sub(name, 2)
  if call('HEXISTS', kind == 'c' and p or r, rest) == 1 then
    call('HSET', doc .. name, 'words', ARGV[at + 1])
    call('HSET', x, name, 1)
    if ends > 0 then call('PEXPIREAT', doc .. name, ends) end
  end
end
if ends_before ~= ends then
  for name in pairs(known) do
    if ends > 0 then call('PEXPIREAT', doc .. name, ends) else call('PERSIST', doc .. name) end
  end
end
call('HSET', x, 'ends', ends)
if ends > 0 then call('PEXPIREAT', x, ends) end
return 1
