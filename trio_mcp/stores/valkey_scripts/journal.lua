#!lua flags=no-writes
local key = argument()
return answer('done', alive(key) and redis.call('HGETALL', journal_at(key)) or {})
