#!lua flags=no-writes
-- include: shared/thread.lua
-- include: shared/documents.lua

-- What the search index does not have of a thread yet: names of documents and their JSON texts in turn. A checkpoint
-- is the document c<seq> with its head and metadata, and a run the document r<branch> <number> with its items.
--
-- ARGV: how many.
local known, missing, limit = known_docs(), {}, tonumber(ARGV[1])
for _, seq in ipairs(call('ZRANGE', s, 0, -1)) do
  if #missing < limit * 2 and not known['c' .. seq] then
    -- The head is the second netstring of a payload, and the metadata the sixth of an entry.
    local _, at = net(call('HGET', p, seq), 1)
    local head = net(call('HGET', p, seq), at)
    local entry, metadata = call('HGET', h, 'e' .. seq), nil
    at = 17
    for _ = 1, 6 do metadata, at = net(entry, at) end
    -- Behind a line feed there is a checksum.
    metadata = string.match(metadata, '^[^\n]*')
    missing[#missing + 1] = 'c' .. seq
    missing[#missing + 1] = '[' .. head .. ',' .. metadata .. ']'
  end
end
for _, name in ipairs(call('HKEYS', r)) do
  if #missing < limit * 2 and string.find(name, ' ', 1, true) and not known['r' .. name] then
    local _, items = split(call('HGET', r, name))
    _, items = split(items)
    -- In format 1 there was no checksum before the items.
    if string.sub(items, 1, 1) ~= '[' then items = string.match(items, '^%S* (.*)$') or items end
    missing[#missing + 1] = 'r' .. name
    missing[#missing + 1] = items
  end
end
return missing
