#!lua
sweep()
local key, writes, token, kept, version = argument(), argument(), argument(), argument(), argument()
if not alive(key) then
    return answer('other')
end
local found, held = unpack(redis.call('HMGET', task_at(key), 'version', 'token'))
if writes == '1' and (token == '' or token ~= held) then
    return answer('stale')
end
if tonumber(found) ~= tonumber(version) - 1 then
    return answer('other')
end
if kept ~= '' and kept ~= held then
    return answer('stale')
end
hide(key)
write(key)
show(key)
write_journal(key)
return answer('done')
