#!lua
-- `events:SESSION` has the newest number of each stream, and the message of each event as STREAM/NUMBER. `log` has all
-- events of all sessions in the order in which they came, so that the oldest can be deleted.
local session, most, age = argument(), tonumber(argument()), tonumber(argument())
local name, log = root .. 'events:' .. session, root .. 'log'
local numbers = {}
while more() do
    local stream, number, data = argument(), tonumber(argument()), argument()
    local newest = tonumber(redis.call('HGET', name, stream) or 0)
    if number == 0 then
        number = newest + 1
    end
    numbers[#numbers + 1] = number
    if number > newest then
        local label = stream .. '/' .. string.format('%.0f', number)
        redis.call('HSET', name, stream, string.format('%.0f', number), label, data)
        redis.call('XADD', log, '*', 's', session, 'e', label)
    end
end

local size = redis.call('XLEN', log)
local function is_over(entry)
    return entry and (size > most or tonumber(string.match(entry[1], '^%d+')) <= 1000 * (now - age))
end
if is_over(redis.call('XRANGE', log, '-', '+', 'COUNT', 1)[1]) then
    for _, entry in ipairs(redis.call('XRANGE', log, '-', '+', 'COUNT', 32 + 2 * #numbers)) do
        if not is_over(entry) then
            break
        end
        local home, label = root .. 'events:' .. entry[2][2], entry[2][4]
        local stream, number = string.match(label, '^(%d+)/(%d+)$')
        redis.call('HDEL', home, label)
        if redis.call('HGET', home, stream) == number then
            redis.call('HDEL', home, stream)
        end
        redis.call('XDEL', log, entry[1])
        size = size - 1
    end
end
expire(name, now + age)
expire(log, now + age)
return answer('done', numbers)
