-- For scripts that look up one checkpoint. Needs thread.lua.

-- The sequence number of the checkpoint in a field of h, or of the latest of a namespace if the field is empty.
local function seq_of(ns, field)
  local seq = split(call('HGET', h, field == '' and 'l' .. ns or field))
  return seq
end
