#!lua flags=no-writes
-- include: shared/thread.lua
-- include: shared/lost.lua
-- include: shared/damage.lua
-- include: shared/lookup.lua
-- include: shared/runs.lua

-- One checkpoint as READ answers it, with the runs that hold a part of it. `needed` in memory/model/parts.py says which
-- these are, and the reader checks with it that all have come. More than that may come: whatever is wrong with a
-- manifest is for the reader to tell.
--
-- ARGV: namespace; the checkpoint's field, or empty for the latest; and `part_arguments` (load.py):
--   range   start and count of some items of a list; the paths that lead to it, the last one is its own
--   window  how many of the last items are wanted of each list; the paths of these lists
--   ends    how many of the last items are wanted of each extent of each list
local seq, nothing = seq_of(ARGV[1], ARGV[2])
if not seq then return nothing end
local answer = checkpoint(ARGV[1], seq)
local payload = answer[3]
if not payload then return answer end
local is_range, is_ends, paths, own = ARGV[3] == 'range', ARGV[3] == 'ends', {}, ARGV[#ARGV]
for at = is_range and 6 or 5, #ARGV do paths[ARGV[at]] = true end

-- A path as the arguments have it: its steps as netstrings.
local function named(path)
  local steps = {}
  for at, step in ipairs(path) do steps[at] = #step .. ':' .. step end
  return table.concat(steps)
end

-- The positions that are wanted of a list: from, to.
local function bounds(path, total)
  if is_range then
    local start, count = tonumber(ARGV[4]), tonumber(ARGV[5])
    start = math.min(start >= 0 and start or math.max(0, total + start), total)
    return start, math.min(start + count, total)
  end
  return paths[path] and math.max(0, total - tonumber(ARGV[4])) or 0, total
end

-- JSON has only one kind of number here. Larger ones would not be what is written there.
local function is_number(value)
  return type(value) == 'number' and value >= 0 and value < 2 ^ 53 and value == math.floor(value)
end

local wanted = new_extents()

local function want_list(path, extents)
  local total, at = 0, 0
  for _, extent in ipairs(extents) do
    assert(type(extent[1]) == 'string' and is_number(extent[2]) and is_number(extent[3]) and is_number(extent[4]))
    total = total + extent[4]
  end
  local low, high = bounds(path, total)
  for _, extent in ipairs(extents) do
    if is_ends then low = at + math.max(0, extent[4] - tonumber(ARGV[4])) end
    local first, last = math.max(low - at, 0), math.min(high - at, extent[4])
    if first < last then add_extent(wanted, extent[1], extent[2], extent[3] + first, last - first) end
    at = at + extent[4]
  end
end

local function want_part(manifest)
  for _, row in ipairs(cjson.decode(manifest)) do
    local path, cut = named(row[1]), row[2]
    if type(cut) == 'string' then
      if not is_ends and (not is_range or paths[path]) then add_extent(wanted, cut, 0, 0, 1) end
    elseif not is_range or path == own then
      want_list(path, cut)
    end
  end
end

local _, at = net(payload, 1)
_, at = net(payload, at)
if not pcall(want_part, (net(payload, at))) then wanted = extents_in(payload) end
return hand_over(answer, wanted, new_extents())
