#!lua
-- `events:SESSION` has the newest number of each stream, and the message of each event as STREAM/NUMBER. `log` has all
-- events of all sessions in the order in which they came, so that the oldest can be deleted.
local session, most, age = argument(), tonumber(argument()), tonumber(argument())
local fenced, token, expires = argument() ~= '', argument(), argument()
local name, log = root .. 'events:' .. session, root .. 'log'
local by = fenced and holder(token) or nil
if fenced and not by then
    return reply('stale')
end
local living = alive(session)
if by and not living then
    return reply('none')
end

local ended, order, streams = {}, {}, {}
-- Return what is noted about a stream of this call.
local function touched(stream)
    if not streams[stream] then
        order[#order + 1] = stream
        streams[stream] = living and stream_of(session, stream) or parse(nil)
        streams[stream].last = newest_of(session, stream, streams[stream])
    end
    return streams[stream]
end
for place = 1, tonumber(argument()) do
    ended[place] = argument()
end

local numbers = {}
while more() do
    local stream, number, data = argument(), tonumber(argument()), argument()
    local found = touched(stream)
    if number == 0 then
        number = found.last + 1
    end
    numbers[#numbers + 1] = number
    found.last = math.max(found.last, number)
    if number > tonumber(redis.call('HGET', name, stream) or 0) then
        local label = stream .. '/' .. string.format('%.0f', number)
        redis.call('HSET', name, stream, string.format('%.0f', number), label, data)
        redis.call('XADD', log, '*', 's', session, 'e', label)
    end
end

local unsettled = by and prolong(session, expires)
if by then
    for place, stream in ipairs(ended) do
        touched(stream).ended = true
    end
end
for _, stream in ipairs(order) do
    local found = streams[stream]
    if living and found.last > found.newest and (found.known or stream == '0') then
        found.newest = found.last
        unsettled = unsettled or not found.known
        write(session, stream, found)
    end
    if by and found.carrier ~= by then
        tell(session, stream, found, found.ended)
    end
    if found.ended and found.member ~= '0' then
        close(session, stream, found)
        unsettled = true
    end
end
if unsettled then
    settle(session)
end
if #numbers == 0 then
    return reply('done', numbers)
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
return reply('done', numbers)
