#!lua
sweep()
local key, by, expires = argument(), holder(argument()), argument()
if not by then
    return reply('stale')
elseif not alive(key) then
    return reply('none')
end
local unsettled = prolong(key, expires)
local name = root .. 'session:' .. key
if more() then
    while more() do
        local field, kept, value = 'f:' .. argument(), argument(), argument()
        if kept == '' then
            redis.call('HDEL', name, field)
        else
            redis.call('HSET', name, field, value)
        end
    end
    redis.call('HINCRBY', name, 'version', 1)
    unsettled = true
    local carrier = stream_of(key, '0').carrier
    if carrier ~= by then
        post(carrier, 'changed', key, '0', '')
    end
end
if unsettled then
    settle(key)
end
return reply('done', redis.call('HGET', name, 'version'))
