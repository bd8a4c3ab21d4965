#!lua flags=no-writes
local number, most = holder(argument()), tonumber(argument())
if not number then
    return reply('stale')
end
local found = {}
for _, label in ipairs(redis.call('ZRANGE', root .. 'opened:' .. number, 0, most - 1)) do
    local stream, key = string.match(label, '^(%d+) (.*)$')
    found[#found + 1] = {key, stream, stream_of(key, stream).requests}
end
return reply('done', found)
