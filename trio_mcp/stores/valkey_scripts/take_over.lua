#!lua flags=allow-oom
local duration, most = tonumber(argument()), argument()
local lost = redis.call('ZRANGEBYSCORE', root .. 'members', '-inf', text(now), 'LIMIT', 0, most)
for _, number in ipairs(lost) do
    redis.call('HSET', root .. 'member:' .. number, 'token', argument(), 'bytes', 0)
    redis.call('UNLINK', root .. 'mail:' .. number, root .. 'letters:' .. number)
    redis.call('ZADD', root .. 'members', text(start + duration), number)
end
return reply('done', lost)
