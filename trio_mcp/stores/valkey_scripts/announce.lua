#!lua
-- `topics` has the topics by the numbers of their last changes. Those with numbers up to `mark` had changed by the time
-- `marked`; so topics are dropped one to two times `age` after their last change.
local most, age = tonumber(argument()), tonumber(argument())
local name = root .. 'topics'
local newest, dropped, mark, marked = unpack(redis.call('HMGET', about, 'newest', 'dropped', 'mark', 'marked'))
newest, dropped = tonumber(newest or 0), tonumber(dropped or 0)
if redis.call('EXISTS', name) == 0 then
    dropped = newest -- the engine has deleted them all
end
if not more() then
    return answer('done', text(newest))
end
while more() do
    newest = newest + 1
    redis.call('ZADD', name, text(newest), argument())
end
if not marked or tonumber(marked) + age < now or tonumber(marked) > now then
    dropped = math.max(dropped, marked and tonumber(marked) <= now and tonumber(mark) or 0)
    redis.call('HSET', about, 'mark', text(newest), 'marked', text(now))
end
local beyond = redis.call('ZRANGE', name, -most - 1, -most - 1, 'WITHSCORES')[2]
dropped = math.max(dropped, tonumber(beyond or 0))
redis.call('ZREMRANGEBYSCORE', name, '-inf', text(dropped))
redis.call('HSET', about, 'newest', text(newest), 'dropped', text(dropped))
expire(name, now + age)
return answer('done', text(newest))
