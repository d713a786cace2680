#!lua
-- include: shared/thread.lua
-- include: shared/lost.lua
-- include: shared/damage.lua
-- include: shared/changes.lua

-- Saves a checkpoint: decides whether it may be written, and writes it, in one atomic step.
--
-- To change how a save decides a conflict, change the part "Decide" below together with `decide` in
-- memory/model/commit_rules.py. The two must agree: tests/backends/test_commit_rules.py holds them against each other
-- on random and directed courses, and tests/backends/test_commit_shortcuts.py shows that these courses notice if a
-- condition is missing here. Making the decision here, and not in Python, keeps a save at one round trip.
--
-- `commit_arguments` in commit.py makes the arguments:
--   id, ns, cid, rev       the thread, namespace and checkpoint, and the name of this save
--   same_field             the field of this checkpoint in h; base_field and parent_field are those of the other two
--   base_field, base_rev   the checkpoint that the delta refers to; an empty field for a whole save
--   parent_mode, parent    * the latest   - none   = this one, or else the latest   ! this one, or refuse
--                          ~ this one, whether it exists or not
--   latest_mode, expected  * whatever is the latest   - there must be none   = it must be this one
--   replaces               the rev of the checkpoint of the same id that this save may replace
--   expires                when the thread expires, in milliseconds; empty for never
--   entry, payload         what is stored; the entry still lacks its time, its links and their seal
--   pairs_of               digests of the metadata pairs, 16 characters each
--   planned                the version that the removal of the replaced checkpoint was planned for
--   count                  how many runs follow: branch, number and text of each; behind them the planned removal
--
-- Returns the new sequence number, if it has saved the checkpoint with the parent that was named: an ordinary save, whose
-- answer is short to read. Else {verdict, ...}. The verdicts are those of `Verdict`, and
--   REPEATED  this very save was committed before: its answer was lost, and it was sent again
--   MOVED     the thread changed since the removal was planned: plan again
--   DAMAGED   some keys of the thread are missing
--   BROKEN    what leads to a checkpoint is lost: a save would hide it for good
local id, ns, cid, same_field, rev = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local base_field, base_rev = ARGV[6], ARGV[7]
local parent_mode, parent, parent_field = ARGV[8], ARGV[9], ARGV[10]
local latest_mode, expected, replaces, expires = ARGV[11], ARGV[12], ARGV[13], ARGV[14]
local entry, pairs_of, payload, planned = ARGV[15], ARGV[16], ARGV[17], ARGV[18]
local runs_at, count = 20, tonumber(ARGV[19])

local found = call('HMGET', h, 'seq', 'ttl', 'l' .. ns, same_field, base_field, parent_field,
  proof('l' .. ns), proof(same_field), proof(parent_field))
local is_new = not found[1]
if is_new and damaged() then return {'DAMAGED'} end

local function parent_of(seq)
  return parent_in(call('HGET', h, 'e' .. seq) or '')
end

---- Look for damage: a save must not hide that something was lost. ----

local last, latest = split(found[3])
local same, same_rev = split(found[4])
if (not last and found[7]) or (not same and found[8]) or (not found[6] and found[9]) then return {'BROKEN'} end
-- The latest is named by its number and its id, and must be found by both.
if last then
  local named = parent == latest and found[6] or call('HGET', h, 'i' .. #ns .. ':' .. ns .. #latest .. ':' .. latest)
  if split(named) ~= last then return {'BROKEN'} end
end
-- Lua would print a large number as 1e+15.
local seq = string.format('%.0f', (tonumber(found[1]) or 0) + 1)
if call('HEXISTS', h, 'e' .. seq) == 1 then return {'BROKEN'} end

---- Decide. Nothing is written before the last check has passed. ----

if same_rev == rev then return {'REPEATED', same, parent_of(same) or false} end
if same and same_rev ~= replaces then return {'EXISTS'} end

if latest_mode ~= '*' and latest ~= (latest_mode == '=' and expected or nil) then
  return {'CONFLICT', latest or false}
end

if base_field ~= '' then
  local _, found_rev = split(found[5])
  if found_rev ~= base_rev then return {'STALE_BASE'} end
end

-- If the first run that this save adds to a branch has a number above 0, it continues that branch, where another save
-- may have been faster. If it opens one, nobody else may have: only who uses a rev twice, or sends a save again, finds
-- something there. All other runs follow it, or are large values: those are the same for everyone.
local seen = {}
for at = runs_at, runs_at + count * 3 - 1, 3 do
  local branch, number = ARGV[at], tonumber(ARGV[at + 1])
  if not seen[branch] and string.sub(branch, 1, 1) ~= '#' then
    local tip = call('HGET', r, branch)
    if tip and tonumber(tip) >= number then return {'BRANCH_TAKEN'} end
    if number == 0 and call('HEXISTS', r, branch .. ' 0') == 1 then return {'BRANCH_TAKEN'} end
  end
  seen[branch] = true
end

-- A checkpoint is never its own parent: where it would be, it takes the parent of the one that it replaces.
-- Where no parent is named, `parent` and its field are empty.
local chosen = nil
if same and parent == cid then
  chosen = parent_of(same)
elseif parent_mode == '~' then
  if parent ~= cid then chosen = parent end
elseif found[6] then
  chosen = parent
elseif parent_mode == '!' then
  return {'NO_PARENT'}
elseif parent_mode ~= '-' then
  chosen = latest
  if latest == cid then chosen = parent_of(same) end
end

if same and planned ~= version() then return {'MOVED'} end

---- Write. ----

-- The pending writes stay: they belong to the checkpoint's id, which stays, too.
if same then
  remove(id, runs_at + count * 3, true)
  last = split(call('HGET', h, 'l' .. ns))
end
local now, real = clock()
local at = string.format('%016.0f', now)
local link = (last or '0') .. (chosen and ' ' .. chosen or '')
call('HSET', h, 'seq', seq, same_field, seq .. ' ' .. rev, proof(same_field), '', 'l' .. ns, seq .. ' ' .. cid,
  'L' .. ns, '', 'e' .. seq, linked(seq, at, entry, link))
call('ZADD', s, seq, seq)
call('HSET', p, seq, payload)

-- Each run, and for a branch that goes on the number of its newest run: others may have continued a branch that this
-- save opened, if it was sent before.
local runs = {}
for first = runs_at, runs_at + count * 3 - 1, 3 do
  local branch, number = ARGV[first], ARGV[first + 1]
  runs[#runs + 1] = branch .. ' ' .. number
  runs[#runs + 1] = ARGV[first + 2]
  if number ~= '0' and tonumber(number) > tonumber(call('HGET', r, branch) or 0) then
    runs[#runs + 1] = branch
    runs[#runs + 1] = number
  end
end
set_all(r, runs)

if is_new then
  call('HSET', h, 'born', rev)
  note_writes()
  call('ZADD', ids, 0, id)
end
call('ZADD', recent, now, id)
if pairs_of ~= '' then
  call('HSET', h, 'meta', 1)
  for first = 1, #pairs_of, 16 do
    call('ZADD', meta, 0, string.sub(pairs_of, first, first + 15) .. at .. seq .. ':' .. id)
  end
end

-- A save that arrives after its time counts, and is gone at once. Redis would remove the keys by itself, but not
-- what the index says of them.
if expires ~= '' and tonumber(expires) * 1000 <= real then
  drop(id)
elseif is_new or expires ~= '' or found[2] then
  keep_until(expires, is_new)
elseif call('HEXISTS', ends, id) == 0 then
  call('HSET', ends, id, '')
end
if expires ~= '' then sweep(id, pairs_of ~= '') end
if chosen == parent then return tonumber(seq) end
return {'COMMITTED', seq, chosen or false}
