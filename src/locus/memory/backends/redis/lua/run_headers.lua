#!lua flags=no-writes
-- include: shared/thread.lua
-- include: shared/run_headers.lua

-- A portion of a thread's runs: where the next portion begins, or 0 at the end; names, headers ("<start> <length>"), and
-- the bytes of items. A run may come twice. One that is there all the time comes at least once.
--
-- ARGV: where the portion begins, or 0; about how many runs it has.
local found = call('HSCAN', r, ARGV[1], 'COUNT', ARGV[2])
local names, headers, sizes = {}, {}, {}
for at = 1, #found[2], 2 do
  local name = found[2][at]
  -- A name without a space is that of a branch, with the number of its newest run.
  if string.find(name, ' ', 1, true) then
    names[#names + 1] = name
    headers[#names], sizes[#names] = about_run(found[2][at + 1])
  end
end
return {found[1], names, headers, sizes}
