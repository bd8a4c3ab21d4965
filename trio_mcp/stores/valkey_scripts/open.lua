#!lua
-- Open the data of a prefix, or begin it. ARGV: the layout; a new epoch; the name of the server, if it is known; and
-- the epoch that the caller has known, if any: if it is another one, its data is lost.
local about = KEYS[1]
local stamp = redis.call('TIME')
local kind = redis.call('TYPE', about).ok
if kind == 'none' then
    redis.call('HSET', about, 'layout', ARGV[1], 'epoch', ARGV[2])
elseif kind ~= 'hash' then
    return {stamp[1], stamp[2], 'foreign'}
end
local layout, epoch, server = unpack(redis.call('HMGET', about, 'layout', 'epoch', 'server'))
if not layout or not epoch then
    return {stamp[1], stamp[2], 'foreign'}
end
if layout ~= ARGV[1] then
    return {stamp[1], stamp[2], 'layout', layout}
end
if ARGV[3] ~= '' then
    redis.call('HSETNX', about, 'server', ARGV[3])
    server = redis.call('HGET', about, 'server')
    if server ~= ARGV[3] then
        return {stamp[1], stamp[2], 'server', server}
    end
end
if ARGV[4] ~= '' and ARGV[4] ~= epoch and redis.call('HSETNX', about, 'above', '1') == 1 then
    -- The numbers of changes go on above all that were given before the loss, so that no process misses it.
    local number = string.format('%.0f', 1000 * tonumber(stamp[1]) + math.floor(tonumber(stamp[2]) / 1000))
    redis.call('HSET', about, 'newest', number, 'dropped', number)
end
return {stamp[1], stamp[2], 'done', epoch}
