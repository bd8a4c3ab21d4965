#!lua
local name, seconds = root .. 'remembered:' .. argument(), tonumber(argument())
if seconds <= 0 then
    return answer('done', 1 - redis.call('EXISTS', name))
end
return answer('done', redis.call('SET', name, '1', 'NX', 'PX', milliseconds(seconds)) and 1 or 0)
