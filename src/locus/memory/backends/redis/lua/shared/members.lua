-- For scripts on the metadata index of a bucket. A member is <digest of key and value: 16><time: 16><seq>:<id>. Needs
-- bucket.lua.

local function parts(member)
  local seq, after = string.match(member, '^(%d+):()', 33)
  return seq, string.sub(member, after)
end

-- The entry that a member speaks of, or false if it is gone; empty if it should be there, and is not. A thread that
-- expired and was created again counts from 1 again: only the time tells its entries from the old.
local function entry_of(member)
  local seq, id = parts(member)
  local entry = call('HGET', stem .. id, 'e' .. seq)
  if not entry and call('ZSCORE', string.sub(stem, 1, -3) .. 's:' .. id, seq) then return '' end
  return entry and string.sub(entry, 1, 16) == string.sub(member, 17, 32) and entry
end
