#!lua flags=allow-oom
-- include: shared/bucket.lua
-- include: shared/members.lua

-- Takes threads and metadata out of the bucket's index. Each is checked once more: since it was found to be gone, the
-- thread may have been saved to again.
--
-- ARGV: the number of threads, their ids, then members of the metadata index.
for at = 2, ARGV[1] + 1 do
  if call('EXISTS', stem .. ARGV[at]) == 0 then
    call('ZREM', ids, ARGV[at])
    call('ZREM', recent, ARGV[at])
  end
end
for at = ARGV[1] + 2, #ARGV do
  if not entry_of(ARGV[at]) then call('ZREM', meta, ARGV[at]) end
end
return 1
