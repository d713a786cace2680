-- For scripts that look up one checkpoint. Needs thread.lua, lost.lua and damage.lua.

-- The sequence number of the checkpoint in a field of h, or of the latest of a namespace if the field is empty. Nil if
-- there is none, and what to answer then.
local function seq_of(ns, field)
  local name = field == '' and 'l' .. ns or field
  local found = call('HMGET', h, name, proof(name))
  local seq, id = split(found[1])
  if field == '' and seq then
    -- The latest is named by its number and its id, and must be found by both.
    local same = id and split(call('HGET', h, 'i' .. #ns .. ':' .. ns .. #id .. ':' .. id))
    if same ~= seq then return nil, {'BROKEN'} end
  end
  if seq then return seq end
  return nil, found[2] and {'BROKEN'} or damaged() and {'DAMAGED'} or {}
end
