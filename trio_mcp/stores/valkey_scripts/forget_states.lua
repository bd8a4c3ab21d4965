#!lua flags=allow-oom
local user = argument()
for _, name in ipairs(redis.call('ZRANGE', root .. 'states:' .. user, 0, -1)) do
    redis.call('UNLINK', root .. 'state:' .. user .. ':' .. name)
end
redis.call('UNLINK', root .. 'states:' .. user)
return answer('done')
