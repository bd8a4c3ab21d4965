#!lua flags=no-writes
local key = argument()
return answer('done', alive(key) and columns(key))
