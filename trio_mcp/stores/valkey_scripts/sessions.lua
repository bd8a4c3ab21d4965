-- Sessions, and the members that serve them. `session:KEY` is a hash: `expires`, `version`, `declaration`, and each
-- field after "f:". `streams:KEY` has the open streams of a session, and stream 0 once it is used, each as "MEMBER
-- CARRIER NEWEST REQUESTS"; 0 is no member, and a NUL follows each request. The sorted set `sessions` has all keys by
-- expiry; those with an open stream come last. `members` has the numbers of members by the end of their leases;
-- `member:NUMBER` is a hash: `token`, `newest` and `bytes` of its letters. `mail:NUMBER` has its letters as "KIND STREAM
-- SESSION" by their numbers, so that a letter takes the place of the one about the same, and `letters:NUMBER` has what
-- they say. `opened:NUMBER` and `carried:NUMBER` have its streams as "STREAM SESSION"; the second one lacks those in the
-- first. The first argument is the name of the caller's process.
local GRACE = 3600 -- seconds after which the engine deletes what no call has swept
local SLICE = 32
local sender = argument()
local posted = 0

-- Return the number of the member that has a token, nil if the token is stale.
local function holder(token)
    local number, secret = string.match(token, '^(%d+)%.(.+)$')
    if number and redis.call('HGET', root .. 'member:' .. number, 'token') == secret then
        return number
    end
end

local function post(number, kind, key, stream, value)
    local member = root .. 'member:' .. number
    if redis.call('EXISTS', member) == 0 then
        return
    end
    local newest = redis.call('HINCRBY', member, 'newest', 1)
    if kind == 'message' then
        stream = newest -- so that it replaces no other message
        redis.call('HINCRBY', member, 'bytes', #value)
    end
    local label = kind .. ' ' .. stream .. ' ' .. key
    redis.call('ZADD', root .. 'mail:' .. number, newest, label)
    redis.call('HSET', root .. 'letters:' .. number, label, value)
    posted = 1
end

-- Return the response; the processes whose members have got letters hear of it.
local function reply(status, ...)
    if posted == 1 then
        redis.call('PUBLISH', string.sub(about, 1, -6) .. 'wake', '["' .. sender .. '", ["letters"]]')
    end
    return answer(status, posted, ...)
end

local function has_open(key)
    local name = root .. 'streams:' .. key
    return redis.call('HLEN', name) > redis.call('HEXISTS', name, '0')
end

local function alive(key)
    local expires = redis.call('HGET', root .. 'session:' .. key, 'expires')
    return expires and (tonumber(expires) > now or has_open(key))
end

-- Let what a session has live as long as the session. Call it when its end has changed, or whether it has open streams.
local function settle(key)
    local name, all = root .. 'session:' .. key, root .. 'sessions'
    local expires = redis.call('HGET', name, 'expires')
    if not expires then
        return
    end
    local open = has_open(key)
    redis.call('ZADD', all, open and '+inf' or expires, key)
    local till = not open and tonumber(expires) + GRACE or nil
    expire(name, till)
    expire(root .. 'streams:' .. key, till)
    local last = tonumber(redis.call('ZRANGE', all, -1, -1, 'WITHSCORES')[2])
    expire(all, last < math.huge and last + GRACE or nil)
end

local function prolong(key, expires)
    local name = root .. 'session:' .. key
    if expires == '' or tonumber(expires) <= tonumber(redis.call('HGET', name, 'expires')) then
        return false
    end
    redis.call('HSET', name, 'expires', expires)
    return true
end

local function parse(value)
    if not value then
        return {member = '0', carrier = '0', newest = 0, requests = '', known = false}
    end
    local member, carrier, newest, requests = string.match(value, '^(%d+) (%d+) (%d+) (.*)$')
    return {member = member, carrier = carrier, newest = tonumber(newest), requests = requests, known = true}
end

local function stream_of(key, stream)
    return parse(redis.call('HGET', root .. 'streams:' .. key, stream))
end

local function write(key, stream, found)
    local newest = string.format('%.0f', found.newest)
    local value = found.member .. ' ' .. found.carrier .. ' ' .. newest .. ' ' .. found.requests
    redis.call('HSET', root .. 'streams:' .. key, stream, value)
end

-- Note the members that have a stream open, and carry it, instead of those before.
local function hold(key, stream, found, member, carrier)
    local label = stream .. ' ' .. key
    if found.member ~= '0' then
        redis.call('ZREM', root .. 'opened:' .. found.member, label)
    end
    if found.carrier ~= '0' and found.carrier ~= found.member then
        redis.call('ZREM', root .. 'carried:' .. found.carrier, label)
    end
    if member ~= '0' then
        redis.call('ZADD', root .. 'opened:' .. member, 0, label)
    end
    if carrier ~= '0' and carrier ~= member then
        redis.call('ZADD', root .. 'carried:' .. carrier, 0, label)
    end
    found.member, found.carrier = member, carrier
end

-- Return the number of the newest event of a stream, which may be stored or only noted.
local function newest_of(key, stream, found)
    return math.max(found.newest, tonumber(redis.call('HGET', root .. 'events:' .. key, stream) or 0))
end

local function tell(key, stream, found, ended)
    local newest = string.format('%.0f', newest_of(key, stream, found))
    post(found.carrier, 'events', key, stream, newest .. (ended and ' 1' or ' 0'))
end

-- Delete a stream that is open.
local function close(key, stream, found)
    hold(key, stream, found, '0', '0')
    redis.call('HDEL', root .. 'streams:' .. key, stream)
end

-- Delete a session, and return the set of the members that had its streams.
local function delete(key)
    local members = {}
    local streams = redis.call('HGETALL', root .. 'streams:' .. key)
    for place = 1, #streams, 2 do
        local found = parse(streams[place + 1])
        members[found.member], members[found.carrier] = true, true
        hold(key, streams[place], found, '0', '0')
    end
    redis.call('UNLINK', root .. 'session:' .. key, root .. 'streams:' .. key, root .. 'events:' .. key)
    redis.call('ZREM', root .. 'sessions', key)
    return members
end

local function finish(key)
    for number in pairs(delete(key)) do
        post(number, 'ended', key, '0', '')
    end
end

local function sweep()
    for _, key in ipairs(redis.call('ZRANGEBYSCORE', root .. 'sessions', '-inf', text(now), 'LIMIT', 0, SLICE)) do
        delete(key)
    end
end
