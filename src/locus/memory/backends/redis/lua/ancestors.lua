#!lua flags=no-writes
-- include: shared/thread.lua
-- include: shared/lost.lua
-- include: shared/damage.lua
-- include: shared/lookup.lua
-- include: shared/tasks.lua

-- A checkpoint, and those that it was made from, its parent first: of each its number, its entry, its payload, and names
-- of tasks and their pending writes in turn; of the first only its number and its entry. The answer ends with one that
-- has no parent, or whose parent is not there, and may go round in a circle. Empty if there is no such checkpoint.
--
-- ARGV: namespace, as it stands in places; id of the checkpoint; how many.
local namespace, id, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])
if lost_writes() or damaged() then return {'DAMAGED'} end

local function place_of(name)
  return namespace .. #name .. ':' .. name
end

-- Names of tasks and their pending writes in turn; nil if something of them is lost.
local function writes_of(place)
  local tasks, found = tasks_of(place), {}
  if not tasks then return nil end
  for _, task in ipairs(names_in(tasks)) do
    local text = call('HGET', w, 't' .. place .. task)
    if not text then return nil end
    found[#found + 1] = task
    found[#found + 1] = text
  end
  return found
end

local seq, nothing = seq_of('', 'i' .. place_of(id))
if not seq then return nothing end
local entry = call('HGET', h, 'e' .. seq) or ''
local answer = {seq, entry}
while #answer < limit * 4 do
  local parent = parent_in(entry)
  if not parent then break end
  local place = place_of(parent)
  seq, nothing = seq_of('', 'i' .. place)
  if not seq and #nothing > 0 then return nothing end
  if not seq then break end
  local writes = writes_of(place)
  if not writes then return {'BROKEN'} end
  entry = call('HGET', h, 'e' .. seq) or ''
  answer[#answer + 1] = seq
  answer[#answer + 1] = entry
  answer[#answer + 1] = call('HGET', p, seq)
  answer[#answer + 1] = writes
end
return answer
