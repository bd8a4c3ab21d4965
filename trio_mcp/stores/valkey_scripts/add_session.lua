#!lua
sweep()
local key, expires, declaration, limit, unless = argument(), argument(), argument(), tonumber(argument()), argument()
if alive(key) then
    return reply('exists')
elseif is_ending(key) and not clear(key, true) then
    return reply('more')
elseif redis.call('EXISTS', root .. 'session:' .. key) == 1 and not delete(key, false) then
    return reply('more')
end

-- Begin an index of the sessions that lack a field, unless there is one.
local function index(field)
    for each in spares() do
        if each == field then
            return
        end
    end
    redis.call('HSET', about, 'spares', (redis.call('HGET', about, 'spares') or '') .. field .. '\0')
    for _, each in ipairs(redis.call('ZRANGE', root .. 'sessions', 0, -1)) do
        settle(each)
    end
end

if unless ~= '' then
    index(unless)
end
if redis.call('ZCOUNT', root .. 'sessions', '(' .. text(now), '+inf') >= limit then
    local spare = root .. 'spare:' .. unless
    local found = redis.call('ZRANGEBYSCORE', spare, '(' .. text(now), '+inf', 'LIMIT', 0, 1)[1]
    if not found then
        return reply('full')
    end
    delete(found, true)
end
local name = root .. 'session:' .. key
redis.call('HSET', name, 'expires', expires, 'version', 1, 'declaration', declaration)
while more() do
    redis.call('HSET', name, 'f:' .. argument(), argument())
end
settle(key)
return reply('done')
