#!lua flags=allow-oom
-- Each call deletes some letters.
local MOST = 500
sweep()
local number, duration, read = holder(argument()), tonumber(argument()), argument()
if not number then
    return reply('stale')
end
stay(number, duration)
local opened = root .. 'opened:' .. number
for _, label in ipairs(redis.call('ZRANGEBYSCORE', opened, '-inf', text(now), 'LIMIT', 0, PIECE)) do
    settle(string.match(label, '^%d+ (.*)$'))
    redis.call('ZADD', opened, text(now + KEPT / 2), label)
end
local mail, letters = root .. 'mail:' .. number, root .. 'letters:' .. number
local labels = redis.call('ZRANGEBYSCORE', mail, '-inf', read, 'LIMIT', 0, MOST)
local size = 0
for _, label in ipairs(labels) do
    if string.sub(label, 1, 8) == 'message ' then
        size = size + redis.call('HSTRLEN', letters, label)
    end
end
if #labels > 0 then
    redis.call('HDEL', letters, unpack(labels))
    redis.call('ZREM', mail, unpack(labels))
end
if size > 0 then
    redis.call('HINCRBY', root .. 'member:' .. number, 'bytes', -size)
end
return reply(#labels == MOST and 'more' or 'done')
