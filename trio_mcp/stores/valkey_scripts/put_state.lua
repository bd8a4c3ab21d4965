#!lua
-- `state:USER:NAME` has the tag, whose length is fixed, and the value; `states:USER` has the names, by expiry.
local user, name, before, tag, expires, value =
    argument(), argument(), argument(), argument(), argument(), argument()
local key, names = root .. 'state:' .. user .. ':' .. name, root .. 'states:' .. user
local found = redis.call('GET', key)
if (found and string.sub(found, 1, #tag) or '') ~= before then
    return answer('kept', found)
end
redis.call('SET', key, tag .. value)
redis.call('ZADD', names, expires == '' and '+inf' or expires, name)
if expires ~= '' then
    redis.call('PEXPIREAT', key, milliseconds(tonumber(expires)))
end
redis.call('ZREMRANGEBYSCORE', names, '-inf', text(now))
local last = redis.call('ZRANGE', names, -1, -1, 'WITHSCORES')[2]
expire(names, last and last ~= 'inf' and tonumber(last) or nil)
return answer('done')
