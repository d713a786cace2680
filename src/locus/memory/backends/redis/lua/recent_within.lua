#!lua flags=no-writes
-- include: shared/bucket.lua

-- Of a page of the bucket's threads, newest first: the ids that begin with a prefix and the times of their last commits
-- in turn; and the id and the time of the last one on the page, if there may be more behind it.
--
-- ARGV: from which time on backwards, how many, the prefix.
local page = call('ZREVRANGEBYSCORE', recent, ARGV[1], '-inf', 'WITHSCORES', 'LIMIT', 0, ARGV[2])
local found, last = {}, {}
for at = 1, #page, 2 do
  if string.sub(page[at], 1, #ARGV[3]) == ARGV[3] then
    found[#found + 1] = page[at]
    found[#found + 1] = page[at + 1]
  end
end
if #page == 2 * tonumber(ARGV[2]) then last = {page[#page - 1], page[#page]} end
return {found, last}
