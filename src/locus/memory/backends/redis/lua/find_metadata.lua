#!lua flags=no-writes
-- include: shared/bucket.lua
-- include: shared/members.lua

-- A page of the metadata index of the bucket, newest first: its members, and the entry that each one speaks of, or
-- nil if that is gone. Then the last member that was looked at, or empty if there are no more.
--
-- ARGV: lowest, highest (as ZREVRANGEBYLEX takes them), how many to look at; how the ids of threads start.
local members = call('ZREVRANGEBYLEX', meta, ARGV[2], ARGV[1], 'LIMIT', 0, ARGV[3])
local found, entries, prefix = {}, {}, ARGV[4]
for _, member in ipairs(members) do
  local _, id = parts(member)
  if string.sub(id, 1, #prefix) == prefix then
    found[#found + 1] = member
    entries[#found] = entry_of(member)
  end
end
return {found, entries, #members == tonumber(ARGV[3]) and members[#members] or ''}
