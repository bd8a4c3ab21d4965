#!lua flags=allow-oom
-- Each call closes some streams; the last one removes the member.
local number = holder(argument())
if not number then
    return reply('done')
end
local function streams_in(name)
    local found = {}
    for _, label in ipairs(redis.call('ZRANGE', root .. name .. ':' .. number, 0, PIECE - 1)) do
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
local opened = streams_in('opened')
for _, each in ipairs(opened) do
    abandon(number, each.stream, each.key)
end
local carried = #opened < PIECE and streams_in('carried') or {}
for _, each in ipairs(carried) do
    local found = stream_of(each.key, each.stream)
    if found.carrier == number then
        hold(each.key, each.stream, found, found.member, '0')
        write(each.key, each.stream, found)
    end
    redis.call('ZREM', root .. 'carried:' .. number, each.stream .. ' ' .. each.key)
end
if #opened == PIECE or #carried == PIECE then
    return reply('more')
end
redis.call('ZREM', root .. 'members', number)
for _, name in ipairs({'member:', 'mail:', 'letters:', 'opened:', 'carried:'}) do
    redis.call('UNLINK', root .. name .. number)
end
return reply('done')
