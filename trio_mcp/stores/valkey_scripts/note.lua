#!lua
sweep()
local key, token = argument(), argument()
if token == '' or not alive(key) or redis.call('HGET', task_at(key), 'token') ~= token then
    return answer('stale')
end
write_journal(key)
return answer('done')
