#!lua flags=no-writes
local name, stream, number = root .. 'events:' .. argument(), argument(), tonumber(argument())
local most, size = tonumber(argument()), tonumber(argument())
local newest = tonumber(redis.call('HGET', name, stream) or 0)
local function label(each)
    return stream .. '/' .. string.format('%.0f', each)
end
if newest == 0 or number > newest or (number == newest and redis.call('HEXISTS', name, label(number)) == 0) then
    return reply('gone')
end
local found, bytes = {}, 0
for each = number + 1, math.min(newest, number + most) do
    local data = redis.call('HGET', name, label(each))
    if not data or (bytes > 0 and bytes + #data > size) then
        break
    end
    found[#found + 1] = data
    bytes = bytes + #data
end
if #found == 0 and number < newest then
    return reply('gone')
end
return reply('done', found)
