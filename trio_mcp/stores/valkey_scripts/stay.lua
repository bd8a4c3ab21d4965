#!lua flags=allow-oom
sweep()
local number, duration, read = holder(argument()), tonumber(argument()), argument()
if not number then
    return reply('stale')
end
redis.call('ZADD', root .. 'members', text(start + duration), number)
local mail, letters = root .. 'mail:' .. number, root .. 'letters:' .. number
local size = 0
for _, label in ipairs(redis.call('ZRANGEBYSCORE', mail, '-inf', read)) do
    if string.sub(label, 1, 8) == 'message ' then
        size = size + redis.call('HSTRLEN', letters, label)
    end
    redis.call('HDEL', letters, label)
end
redis.call('ZREMRANGEBYSCORE', mail, '-inf', read)
if size > 0 then
    redis.call('HINCRBY', root .. 'member:' .. number, 'bytes', -size)
end
return reply('done')
