#!lua
sweep()
local key, expires, declaration, limit, unless = argument(), argument(), argument(), tonumber(argument()), argument()
if alive(key) then
    return reply('exists')
end
if redis.call('EXISTS', root .. 'session:' .. key) == 1 then
    delete(key)
end

-- Return the session that may be deleted; those that expire first come first.
local function spare()
    local place, keys = 0, {}
    repeat
        keys = redis.call('ZRANGEBYSCORE', root .. 'sessions', '(' .. text(now), '+inf', 'LIMIT', place, 100)
        for _, each in ipairs(keys) do
            if redis.call('HEXISTS', root .. 'session:' .. each, 'f:' .. unless) == 0 and not has_open(each) then
                return each
            end
        end
        place = place + #keys
    until #keys == 0
end

if redis.call('ZCOUNT', root .. 'sessions', '(' .. text(now), '+inf') >= limit then
    local found = unless ~= '' and spare()
    if not found then
        return reply('full')
    end
    finish(found)
end
local name = root .. 'session:' .. key
redis.call('HSET', name, 'expires', expires, 'version', 1, 'declaration', declaration)
while more() do
    redis.call('HSET', name, 'f:' .. argument(), argument())
end
settle(key)
return reply('done')
