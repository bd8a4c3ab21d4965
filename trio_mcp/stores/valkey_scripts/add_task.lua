#!lua
sweep()
local key, token, duration, limit = argument(), argument(), argument(), argument()
if alive(key) then
    return answer('exists')
end
drop(key)
if limit ~= '' and redis.call('ZCOUNT', root .. 'tasks', '(' .. text(now), '+inf') >= tonumber(limit) then
    return answer('full')
end
redis.call('HSET', task_at(key), 'place', string.format('%015.0f', redis.call('HINCRBY', about, 'places', 1)), 'till', '')
write(key)
if duration ~= '' then
    lease(key, token, start + tonumber(duration))
end
show(key)
write_journal(key)
return answer('done')
