-- For scripts that store pending writes. Needs thread.lua, and to put some, tasks.lua.

-- Goes through the writes of a task, which are: index, path, channel, value, each a netstring, one write after
-- another.
local function each(text, work)
  local at = 1
  while at <= #text do
    local start, index = at, nil
    index, at = net(text, at)
    for _ = 1, 3 do
      local size, from = string.match(text, '^(%d+):()', at)
      at = from + size
    end
    work(index, string.sub(text, start, at - 1))
  end
end

-- Fresh writes replace those of the same index. Writes with a negative index (special channels such as errors) stay in
-- any case; the numbered ones of an earlier attempt stay only if `keep_numbered`. Does nothing, and returns false, if
-- the list of tasks is damaged, or names this one though it has no writes.
local function put_writes(place, task, fresh, keep_numbered)
  local field, named, kept = 't' .. place .. task, {}, {}
  each(fresh, function(index) named[index] = true end)
  local old = call('HGET', w, field)
  if not old and fresh == '' then return true end
  each(old or '', function(index, text)
    if not named[index] and (keep_numbered or string.sub(index, 1, 1) == '-') then kept[#kept + 1] = text end
  end)
  local tasks = tasks_of(place)
  if not tasks then return false end
  if not old then
    for _, name in ipairs(names_in(tasks)) do
      if name == task then return false end  -- its writes were lost
    end
    tasks = tasks .. #task .. ':' .. task
    call('HSET', w, 'd' .. place, tasks, 'D' .. place, tasks_seal(place, tasks))
  end
  call('HSET', w, field, table.concat(kept) .. fresh)
  return true
end
