#!lua flags=no-writes
-- include: shared/thread.lua
-- include: shared/writes.lua

-- Places of checkpoints that are not there though tasks have written for them, and how many writes, in turn.
local answer = {}
for _, field in ipairs(call('HKEYS', w)) do
  local place = string.sub(field, 2)
  if string.sub(field, 1, 1) == 'd' and call('HEXISTS', h, 'i' .. place) == 0 then
    local tasks, at, task, count = call('HGET', w, field), 1, nil, 0
    while at <= #tasks do
      task, at = net(tasks, at)
      each(call('HGET', w, 't' .. place .. task) or '', function() count = count + 1 end)
    end
    if count > 0 then
      answer[#answer + 1] = place
      answer[#answer + 1] = count
    end
  end
end
return answer
