#!lua flags=no-writes
-- include: shared/thread.lua
-- include: shared/lost.lua
-- include: shared/damage.lua

-- The checkpoints that one was made from, its parent first: of each its number, its entry, its payload, and names of
-- tasks and their pending writes in turn. The answer ends with one that has no parent, or whose parent is not there,
-- and may go round in a circle. Empty if there is no such checkpoint.
--
-- ARGV: namespace, as it stands in places; id of the checkpoint; how many.
local namespace, id, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])
if lost_writes() or damaged() then return {'DAMAGED'} end

local function place_of(name)
  return namespace .. #name .. ':' .. name
end

local function entry_of(name)
  local seq = split(call('HGET', h, 'i' .. place_of(name)))
  if not seq then return nil end
  return seq, call('HGET', h, 'e' .. seq) or ''
end

-- An entry is: a time of 16 digits, then as netstrings six texts and, if there is one, the parent.
local function parent_of(entry)
  local at, parent = 17, nil
  for _ = 1, 6 do
    if at > #entry then return nil end
    local size, start = string.match(entry, '^(%d+):()', at)
    at = start + size
  end
  if at <= #entry then parent = net(entry, at) end
  return parent
end

local function writes_of(name)
  local place, found, at, task = place_of(name), {}, 1, nil
  local tasks = call('HGET', w, 'd' .. place) or ''
  while at <= #tasks do
    task, at = net(tasks, at)
    found[#found + 1] = task
    found[#found + 1] = call('HGET', w, 't' .. place .. task) or ''
  end
  return found
end

local answer = {}
local seq, entry = entry_of(id)
while seq and #answer < limit * 4 do
  local parent = parent_of(entry)
  if not parent then break end
  seq, entry = entry_of(parent)
  if seq then
    answer[#answer + 1] = seq
    answer[#answer + 1] = entry
    answer[#answer + 1] = call('HGET', p, seq)
    answer[#answer + 1] = writes_of(parent)
  end
end
return answer
