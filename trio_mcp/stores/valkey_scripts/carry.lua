#!lua
local key, by, stream = argument(), holder(argument()), argument()
if not by then
    return reply('stale')
elseif not alive(key) then
    return reply('none')
end
for _, kind in ipairs({'events', 'taken'}) do
    local label = kind .. ' ' .. stream .. ' ' .. key
    redis.call('ZREM', root .. 'mail:' .. by, label)
    redis.call('HDEL', root .. 'letters:' .. by, label)
end
local found = stream_of(key, stream)
local newest = string.format('%.0f', newest_of(key, stream, found))
if stream ~= '0' and not found.known then
    return reply('done', newest, 0)
end
if found.carrier ~= by then
    post(found.carrier, 'taken', key, stream, '')
end
hold(key, stream, found, found.member, by)
write(key, stream, found)
settle(key)
return reply('done', newest, 1)
