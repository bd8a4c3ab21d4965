#!lua flags=allow-oom
local after = tonumber(argument())
local name = root .. 'topics'
local newest, dropped = unpack(redis.call('HMGET', about, 'newest', 'dropped'))
newest, dropped = tonumber(newest or 0), tonumber(dropped or 0)
if redis.call('EXISTS', name) == 0 then
    dropped = newest -- the engine has deleted them all
end
if after > newest and after < 2 ^ 53 then
    -- The numbers have gone back, as an engine took over that had not got the last writes. Go on with much higher ones.
    newest = math.max(after + 1, math.floor(1000 * now))
    dropped = newest
    redis.call('UNLINK', name)
    redis.call('HSET', about, 'newest', text(newest), 'dropped', text(dropped))
end
local topics = redis.call('ZRANGEBYSCORE', name, '(' .. text(after), '+inf', 'WITHSCORES')
return answer('done', text(newest), after >= dropped and 1 or 0, topics)
