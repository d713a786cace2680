-- For scripts that read a checkpoint: its answer, and the runs that hold what is wanted of it. Needs thread.lua and
-- lookup.lua.
--
-- The answer is: number, entry, payload, 0 or 1 for "a later one exists in this namespace", what a reader is known to
-- have, packets of runs, and long texts. A packet has names and texts of runs in turn, newest first, with NUL between
-- them, which neither has. An empty text stands for the next of the long ones. A client needs longer to read many
-- values than the server to join short ones; it is the other way round with long ones.
--
-- No number that is stored bounds a loop by itself: it may be as large as somebody liked to write.
local LONG_TEXT = 2048
local MOST_STEPS = 5000000
local MOST_EXTENTS = 10000
-- How many runs one call goes through, which takes a tenth of a second or two: everybody waits for a script. Where there
-- are more, the answer is {'MANY', number, entry, payload, later}, and the client reads the runs in portions.
local MOST_RUNS = 10000
-- How many runs are looked at together: few hold a part, and many a whole list.
local FIRST_PORTION, LARGEST_PORTION = 8, 32

local function checkpoint(ns, seq)
  local entry, last, id = call('HGET', h, 'e' .. seq), split(call('HGET', h, 'l' .. ns))
  -- The latest of a namespace is named by its number and its id. An entry with another id counts as missing.
  if last == seq and entry and not string.find(entry, #id .. ':' .. id, 17, true) then entry = false end
  return {seq, entry, call('HGET', p, seq), last == seq and 0 or 1, false, {}, {}}
end

-- Extents by branch, and the branches in the order in which they came.
local function new_extents() return {of = {}, branches = {}} end

local function add_extent(extents, branch, run, skip, length)
  local found = extents.of[branch]
  if not found then
    found = {}
    extents.of[branch] = found
    table.insert(extents.branches, branch)
  end
  -- A large value may stand in many places.
  local last = found[#found]
  if last and last.run == run and last.skip == skip and last.limit == skip + length then return end
  found[#found + 1] = {run = run, skip = skip, limit = skip + length}
end

local function sorted(extents)
  table.sort(extents, function(one, other) return one.run > other.run end)
  return extents
end

-- The extents in a payload's first netstring.
local function extents_in(payload)
  local extents = new_extents()
  for branch, run, skip, length in string.gmatch((net(payload, 1)), '(%S+) (%d+) (%d+) (%d+);') do
    add_extent(extents, branch, tonumber(run), tonumber(skip), tonumber(length))
  end
  return extents
end

-- The numbers of a branch's runs, as they are in r, newest first.
local listed = nil
local function numbers_there(branch)
  if not listed then
    listed = {}
    for _, name in ipairs(call('HKEYS', r)) do
      local owner, number = string.match(name, '^(%S+) (%d+)$')
      if owner then
        listed[owner] = listed[owner] or {}
        table.insert(listed[owner], tonumber(number))
      end
    end
    for _, list in pairs(listed) do table.sort(list, function(one, other) return one > other end) end
  end
  return listed[branch] or {}
end

-- Whether a run shows something of extents, or is the one that one of them names: the reader has to know that it is
-- there. From the newest run backwards, each shows what no newer one has replaced; `limit` is where that begins. The
-- second value tells that one of the extents has now been shown as a whole.
local function shows(extents, number, text)
  local start, shown, done = tonumber(string.match(text, '^%d+')), false, false
  for at = 1, #extents do
    local extent = extents[at]
    -- A damaged run is handed over as if it showed everything, so that the reader reports it.
    local first, skip = start or extent.skip, extent.skip
    if first < extent.limit then
      local length = first < skip and tonumber(string.match(text, '^%d+ (%d+) '))
      if not length or first + length > skip then shown = true end
      extent.limit = first
    end
    if extent.run == number then shown = true end
    if extent.limit <= skip then done = true end
  end
  return shown, done
end

local function unfinished(extents)
  local found = {}
  for _, extent in ipairs(extents) do
    if extent.limit > extent.skip then found[#found + 1] = extent end
  end
  return found
end

-- Those of extents that the reader does not have. It has what is left of one if that is inside of one of the first
-- `count` that are held: no run that is newer than those has replaced anything of it.
local function lacking(extents, held, count)
  if count == 0 then return extents end
  local found = {}
  for _, extent in ipairs(extents) do
    local has = false
    for at = 1, count do
      local other = held[at]
      has = has or extent.run >= other.run and other.skip <= extent.skip and extent.limit <= other.limit
    end
    if not has then found[#found + 1] = extent end
  end
  return found
end

-- Packs runs into an answer, 8 at a time: `..` joins all at once, and table.concat piece by piece, which takes three
-- times as long. Returns two functions, to add a run and to finish.
local function packing(answer)
  local packets, long, z, p, n = answer[6], answer[7], '\0', {}, 0
  local function add(name, text)
    if text == '' or #text > LONG_TEXT then
      long[#long + 1] = text
      text = ''
    end
    p[n + 1], p[n + 2], n = name, text, n + 2
    if n == 16 then
      packets[#packets + 1] = p[1] .. z .. p[2] .. z .. p[3] .. z .. p[4] .. z .. p[5] .. z .. p[6] .. z .. p[7] .. z
        .. p[8] .. z .. p[9] .. z .. p[10] .. z .. p[11] .. z .. p[12] .. z .. p[13] .. z .. p[14] .. z .. p[15] .. z
        .. p[16]
      n = 0
    end
  end
  return add, function() if n > 0 then packets[#packets + 1] = table.concat(p, z, 1, n) end end
end

-- Adds the runs to an answer that hold the wanted extents, except for what a reader has of them who has the held ones.
local function hand_over(answer, wanted, held)
  local last_seq, steps, looked = tonumber(call('HGET', h, 'seq')) or 0, 0, 0
  local many = {'MANY', answer[1], answer[2], answer[3], answer[4]}
  local add, finish = packing(answer)
  for _, branch in ipairs(wanted.branches) do
    local extents, owned = wanted.of[branch], held.of[branch] or {}
    if #extents > MOST_EXTENTS or #owned > MOST_EXTENTS then return {'TOO_LONG'} end
    extents, owned = sorted(extents), sorted(owned)
    local newest = extents[1].run
    if newest > 0 then newest = math.min(newest, tonumber(call('HGET', r, branch) or 0)) end
    -- Mostly a branch has every number, and its runs can be counted down. One with far more than the thread has had
    -- checkpoints was numbered by somebody else, so look which runs are there.
    local is_odd = newest > 2 * last_seq + 1000
    if is_odd and call('HLEN', r) > MOST_RUNS then return many end
    local there = is_odd and numbers_there(branch)
    local at, last = 1, there and #there or newest + 1
    -- Extents are open from the run that they name until all of them is shown. `coming` and `passing` are the next to
    -- open, and the next of the held ones that has not been reached.
    local open, coming, passing, portion = {}, 1, 1, FIRST_PORTION
    while at <= last and (#open > 0 or coming <= #extents) do
      -- Nothing is wanted of the runs before the next extent opens.
      if #open == 0 and there then
        while at <= last and there[at] > extents[coming].run do at = at + 1 end
      elseif #open == 0 then
        at = math.max(at, newest + 1 - extents[coming].run)
      end
      if at > last then break end
      local number = there and there[at] or newest + 1 - at
      while extents[coming] and extents[coming].run >= number do
        open[#open + 1], coming = extents[coming], coming + 1
      end
      while owned[passing] and owned[passing].run >= number do passing = passing + 1 end
      steps = steps + 1 + #open * passing
      if steps > MOST_STEPS then return {'TOO_LONG'} end
      open = lacking(open, owned, passing - 1)

      local fields, numbers = {}, {}
      local stop = math.max(extents[coming] and extents[coming].run or -1, owned[passing] and owned[passing].run or -1)
      while #open > 0 and at <= last and number > stop and #fields < portion do
        numbers[#numbers + 1] = number
        fields[#fields + 1] = branch .. ' ' .. (there and string.format('%.0f', number) or number)
        at = at + 1
        number = there and there[at] or newest + 1 - at
      end
      looked = looked + #fields
      if looked > MOST_RUNS then return many end
      for index, text in ipairs(#fields > 0 and call('HMGET', r, unpack(fields)) or {}) do
        steps = steps + 1 + #open
        if steps > MOST_STEPS then return {'TOO_LONG'} end
        if text and #open > 0 then
          local shown, done = shows(open, numbers[index], text)
          if shown then add(fields[index], text) end
          if done then open = unfinished(open) end
        end
      end
      portion = math.min(portion * 2, LARGEST_PORTION)
    end
  end
  finish()
  return answer
end
