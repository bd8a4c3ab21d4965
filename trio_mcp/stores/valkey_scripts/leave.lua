#!lua flags=allow-oom
local number = holder(argument())
if not number then
    return reply('done')
end
local function streams_in(name)
    local found = {}
    for _, label in ipairs(redis.call('ZRANGE', root .. name .. ':' .. number, 0, -1)) do
        local stream, key = string.match(label, '^(%d+) (.*)$')
        found[#found + 1] = {key = key, stream = stream}
    end
    table.sort(found, function(one, other)
        if one.key == other.key then
            return tonumber(one.stream) < tonumber(other.stream)
        end
        return one.key < other.key
    end)
    return found
end
for _, each in ipairs(streams_in('opened')) do
    local found = stream_of(each.key, each.stream)
    if found.carrier ~= number then
        tell(each.key, each.stream, found, true)
    end
    close(each.key, each.stream, found)
    settle(each.key)
end
for _, each in ipairs(streams_in('carried')) do
    local found = stream_of(each.key, each.stream)
    if found.carrier == number then
        hold(each.key, each.stream, found, found.member, '0')
        write(each.key, each.stream, found)
    end
end
redis.call('ZREM', root .. 'members', number)
for _, name in ipairs({'member:', 'mail:', 'letters:', 'opened:', 'carried:'}) do
    redis.call('UNLINK', root .. name .. number)
end
return reply('done')
