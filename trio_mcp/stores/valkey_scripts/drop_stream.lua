#!lua flags=allow-oom
local key, by, stream = argument(), holder(argument()), argument()
local found = stream_of(key, stream)
if by and found.carrier == by then
    hold(key, stream, found, found.member, '0')
    write(key, stream, found)
end
return reply('done')
