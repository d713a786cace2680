-- For scripts that look for the tasks with pending writes. Needs thread.lua.

-- What proves the list of the tasks of a place.
local function tasks_seal(place, tasks)
  return seal(place .. tasks)
end

-- The list of the tasks that have pending writes at a place, as netstrings in a row; nil if it is damaged.
local function tasks_of(place)
  local found = call('HMGET', w, 'd' .. place, 'D' .. place)
  local tasks = found[1] or ''
  if found[2] and found[2] ~= tasks_seal(place, tasks) then return nil end
  return tasks
end

local function names_in(tasks)
  local names, at, task = {}, 1, nil
  while at <= #tasks do
    task, at = net(tasks, at)
    names[#names + 1] = task
  end
  return names
end
