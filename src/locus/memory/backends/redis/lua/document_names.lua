#!lua flags=no-writes
-- include: shared/thread.lua
-- include: shared/documents.lua

-- The names of the documents that the search index has of a thread.
local names = {}
for name in pairs((known_docs())) do names[#names + 1] = name end
return names
