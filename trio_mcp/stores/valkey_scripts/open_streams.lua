#!lua flags=allow-oom
local number, most = holder(argument()), tonumber(argument())
if not number then
    return reply('stale')
end
local found, ended = {}, false
for _, label in ipairs(redis.call('ZRANGE', root .. 'opened:' .. number, 0, most - 1)) do
    local stream, key = string.match(label, '^(%d+) (.*)$')
    if alive(key) then
        found[#found + 1] = {key, stream, stream_of(key, stream).requests}
    else
        abandon(number, stream, key)
        ended = true
    end
end
return reply(#found == 0 and ended and 'more' or 'done', found)
