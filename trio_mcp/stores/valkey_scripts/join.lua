#!lua
local secret, duration = argument(), tonumber(argument())
local number = string.format('%.0f', redis.call('HINCRBY', about, 'joined', 1))
redis.call('HSET', root .. 'member:' .. number, 'token', secret, 'newest', 0, 'bytes', 0)
stay(number, duration)
return reply('done', number)
