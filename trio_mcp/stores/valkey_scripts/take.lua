#!lua
-- `bucket:NAME` has the time at which the bucket will be full: the more tokens have been taken, the later.
local name, rate, burst = root .. 'bucket:' .. argument(), tonumber(argument()), tonumber(argument())
local capacity = burst / rate
local full_at = math.min(math.max(start, tonumber(redis.call('GET', name) or start)), start + capacity)
local wait = full_at + 1 / rate - (start + capacity)
if wait > 1e-6 then -- sums of times in seconds since the epoch are as exact as that
    return answer('done', text(wait))
end
full_at = full_at + 1 / rate
redis.call('SET', name, text(full_at), 'PX', milliseconds(full_at - now))
return answer('done', '0')
