#!lua flags=no-writes
local key, known = argument(), argument()
if not alive(key) then
    return reply('none')
end
local name = root .. 'session:' .. key
if redis.call('HGET', name, 'version') == known then
    return reply('done', {'expires', redis.call('HGET', name, 'expires'), 'version', known})
end
return reply('done', redis.call('HGETALL', name))
