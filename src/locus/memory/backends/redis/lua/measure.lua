#!lua flags=no-writes
-- include: shared/thread.lua
-- include: shared/lost.lua
-- include: shared/damage.lua
-- include: shared/run_headers.lua

-- What a thread takes, as `to_measured` (schema.py) takes it: sequence numbers and entries; manifests, and the bytes of
-- heads; names and headers ("<start> <length>") of runs, and the bytes of their items; places with pending writes, how
-- many there are, and the bytes of their values. Empty if there is no thread. The last is the version of a thread with
-- too many runs, which RUN_HEADERS gives in portions, then.
local seqs = call('ZRANGE', s, 0, -1)
if #seqs == 0 then return (call('EXISTS', h) == 1 or damaged()) and {'DAMAGED'} or {} end
if is_incomplete() then return {'BROKEN'} end
local fields = {}
for at, seq in ipairs(seqs) do fields[at] = 'e' .. seq end

-- Where the text of a netstring begins, and how long it is.
local function span(text, at)
  local size, start = string.match(text, '^(%d+):()', at)
  return start, tonumber(size)
end

-- A payload is: extents, head, manifest, and maybe a checksum.
local manifests, heads = {}, {}
in_portions(seqs, 100, function(a, b)
  for at, payload in ipairs(call('HMGET', p, unpack(seqs, a, b))) do
    if payload then
      local start, size = span(payload, 1)
      start, size = span(payload, start + size)
      heads[a + at - 1], manifests[a + at - 1] = size, net(payload, start + size)
    else
      heads[a + at - 1], manifests[a + at - 1] = 0, ''
    end
  end
end)

local names, many = {}, has_many_runs()
for _, name in ipairs(many and {} or call('HKEYS', r)) do
  if string.find(name, ' ', 1, true) then names[#names + 1] = name end
end
local headers, sizes = {}, {}
in_portions(names, 100, function(a, b)
  for at, run in ipairs(call('HMGET', r, unpack(names, a, b))) do
    headers[a + at - 1], sizes[a + at - 1] = about_run(run)
  end
end)

-- The writes of a task are: index, path, channel, value with its checksum, each a netstring, one write after another.
local places, counts, written = {}, {}, {}
for _, field in ipairs(call('HKEYS', w)) do
  if string.sub(field, 1, 1) == 'd' then
    local place, tasks, at, task = string.sub(field, 2), call('HGET', w, field), 1, nil
    local count, size = 0, 0
    while at <= #tasks do
      task, at = net(tasks, at)
      local writes, from = call('HGET', w, 't' .. place .. task) or '', 1
      while from <= #writes do
        local start, length
        for _ = 1, 4 do
          start, length = span(writes, from)
          from = start + length
        end
        local mark = string.find(writes, '\n[=#]', start)
        count, size = count + 1, size + (mark and mark < from and mark - start or length)
      end
    end
    if count > 0 then
      places[#places + 1], counts[#counts + 1], written[#written + 1] = place, count, size
    end
  end
end
return {seqs, get_all(h, fields), manifests, heads, names, headers, sizes, places, counts, written, many and version() or ''}
