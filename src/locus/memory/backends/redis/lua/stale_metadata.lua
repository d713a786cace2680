#!lua flags=no-writes
-- include: shared/bucket.lua
-- include: shared/members.lua

-- Looks through a page of the metadata index: the last member of the page, or empty at the end, and those members
-- whose checkpoint is gone.
--
-- ARGV: from (as ZRANGEBYLEX takes it), how many.
local members, stale = call('ZRANGEBYLEX', meta, ARGV[1], '+', 'LIMIT', 0, ARGV[2]), {}
for _, member in ipairs(members) do
  if not entry_of(member) then stale[#stale + 1] = member end
end
return {members[#members] or '', stale}
