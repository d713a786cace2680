#!lua flags=no-writes
-- include: shared/thread.lua
-- include: shared/lost.lua
-- include: shared/damage.lua
-- include: shared/run_headers.lua

-- A thread without its payloads and items, as `ThreadOutline` (remove.py) takes it: its version, sequence numbers,
-- entries, the extents of each checkpoint, and the name and header ("<start> <length>") of each run. The last is
-- whether there are too many runs, which RUN_HEADERS gives in portions, then.
local seqs = call('ZRANGE', s, 0, -1)
if #seqs == 0 and (call('EXISTS', h) == 1 or damaged()) then return {'DAMAGED'} end
if is_incomplete() then return {'BROKEN'} end
local fields = {}
for at, seq in ipairs(seqs) do fields[at] = 'e' .. seq end
local entries, wants = get_all(h, fields), get_all(p, seqs)
for at, payload in ipairs(wants) do
  if payload then wants[at] = net(payload, 1) end
end
local names, headers = {}, {}
-- A name without a space is that of a branch, with the number of its newest run.
local many = has_many_runs()
for _, name in ipairs(many and {} or call('HKEYS', r)) do
  if string.find(name, ' ', 1, true) then names[#names + 1] = name end
end
for at, run in ipairs(get_all(r, names)) do headers[at] = string.match(run, '^%d+ %d+') or '' end
return {version(), seqs, entries, wants, names, headers, many and version() or ''}
