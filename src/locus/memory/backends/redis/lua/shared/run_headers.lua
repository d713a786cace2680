-- For scripts that look through all runs of a thread. Needs thread.lua.

-- True if there are so many runs that going through them would hold up everybody else on the server.
local function has_many_runs()
  return call('HLEN', r) > 10000
end

-- The header of a run ("<start> <length>"), and the bytes of its items. A run is
-- "<start> <length> <checksum>,<before> <items>"; what was stored in format 1 has no checksum.
local function about_run(run)
  local header, start = string.match(run, '^(%d+ %d+) ()')
  if header and string.sub(run, start, start) ~= '[' then start = (string.find(run, ' ', start, true) or #run) + 1 end
  return header or '', header and #run - start + 1 or 0
end
