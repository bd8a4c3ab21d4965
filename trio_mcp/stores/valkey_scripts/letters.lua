#!lua flags=no-writes
local number, after, most, size = holder(argument()), argument(), argument(), tonumber(argument())
if not number then
    return reply('stale')
end
local labels = redis.call(
    'ZRANGEBYSCORE', root .. 'mail:' .. number, '(' .. after, '+inf', 'WITHSCORES', 'LIMIT', 0, most
)
local found, bytes = {}, 0
for place = 1, #labels, 2 do
    local value = redis.call('HGET', root .. 'letters:' .. number, labels[place])
    bytes = bytes + #value
    if place > 1 and bytes > size then
        break
    end
    found[#found + 1] = {labels[place + 1], labels[place], value}
end
return reply('done', found)
