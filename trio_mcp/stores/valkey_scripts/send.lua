#!lua
local key, data, member, request, limit = argument(), argument(), argument(), argument(), tonumber(argument())
if not alive(key) then
    return reply('done', 0)
end
local numbers = {}
if member ~= '' then
    numbers[member] = true
elseif request ~= '' then
    local streams = redis.call('HGETALL', root .. 'streams:' .. key)
    for place = 2, #streams, 2 do
        local found = parse(streams[place])
        if string.find('\0' .. found.requests, '\0' .. request .. '\0', 1, true) then
            numbers[found.member] = true
        end
    end
end
local count = 0
for number in pairs(numbers) do
    local bytes = tonumber(redis.call('HGET', root .. 'member:' .. number, 'bytes'))
    if not bytes then
        numbers[number] = nil
    elseif bytes > 0 and bytes + #data > limit then
        return reply('full', number)
    else
        count = count + 1
    end
end
for number in pairs(numbers) do
    post(number, 'message', key, '0', data)
end
return reply('done', count)
