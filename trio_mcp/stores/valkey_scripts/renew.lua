#!lua flags=allow-oom
local duration, found = tonumber(argument()), {}
while more() do
    local key, token = argument(), argument()
    if token ~= '' and alive(key) and redis.call('HGET', task_at(key), 'token') == token then
        lease(key, token, start + duration)
        show(key)
        found[#found + 1] = columns(key)
    else
        found[#found + 1] = false
    end
end
return answer('done', found)
