#!lua
sweep()
local key, by, stream = argument(), holder(argument()), argument()
if not by then
    return reply('stale')
elseif not alive(key) then
    return reply('none')
end
local found = stream_of(key, stream)
hold(key, stream, found, by, found.known and found.carrier or by)
found.requests = ''
while more() do
    found.requests = found.requests .. argument() .. '\0'
end
write(key, stream, found)
settle(key)
return reply('done')
