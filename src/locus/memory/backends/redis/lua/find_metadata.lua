#!lua flags=no-writes
-- include: shared/bucket.lua

-- A page of the metadata index of the bucket, newest first: its members, and the entry that each one speaks of, or
-- nil if that is gone. A member is <digest of key and value: 16><time: 16><seq>:<id>.
--
-- ARGV: lowest, highest (as ZREVRANGEBYLEX takes them), how many.
local members = call('ZREVRANGEBYLEX', meta, ARGV[2], ARGV[1], 'LIMIT', 0, ARGV[3])
local entries = {}
for at, member in ipairs(members) do
  local seq, after = string.match(member, '^(%d+):()', 33)
  local entry = call('HGET', stem .. string.sub(member, after), 'e' .. seq)
  -- A thread that expired and was created again counts from 1 again: only the time tells its entries from the old.
  entries[at] = entry and string.sub(entry, 1, 16) == string.sub(member, 17, 32) and entry
end
return {members, entries}
