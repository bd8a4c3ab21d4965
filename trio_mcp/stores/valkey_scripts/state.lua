#!lua flags=no-writes
local user, key = argument(), argument()
return answer('done', redis.call('GET', root .. 'state:' .. user .. ':' .. key))
