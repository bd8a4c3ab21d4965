#!lua flags=allow-oom
local duration, most = tonumber(argument()), tonumber(argument())
local lost = redis.call('ZRANGEBYSCORE', root .. 'members', '-inf', text(now))
table.sort(lost, function(one, other)
    return tonumber(one) < tonumber(other)
end)
local taken = {}
for place = 1, math.min(most, #lost) do
    local number = lost[place]
    taken[place] = number
    redis.call('HSET', root .. 'member:' .. number, 'token', argument(), 'bytes', 0)
    redis.call('UNLINK', root .. 'mail:' .. number, root .. 'letters:' .. number)
    stay(number, duration)
end
return reply('done', taken)
