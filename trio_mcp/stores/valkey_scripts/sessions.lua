-- Sessions, and the members that serve them. `session:KEY` is a hash: `expires`, `version`, `declaration`, and each
-- field after "f:". `streams:KEY` has the open streams of a session, and stream 0 once it is used, each as "MEMBER
-- CARRIER NEWEST REQUESTS"; 0 is no member, and a NUL follows each request. The sorted set `sessions` has all keys by
-- the time at which they may be deleted. `spare:FIELD` has those by expiry that have no open stream and lack a field; the
-- names of such fields are in `about`. A session that was ended has no `session:KEY`; as long as it has open streams, it
-- is in `ending`, and is cleared piece by piece. `members` has the numbers of members by the end of their leases;
-- `member:NUMBER` is a hash: `token`, `newest` and `bytes` of its letters. `mail:NUMBER` has its letters as "KIND STREAM
-- SESSION" by their numbers, so that a letter takes the place of the one about the same, and `letters:NUMBER` has what
-- they say. `opened:NUMBER` and `carried:NUMBER` have its streams as "STREAM SESSION"; the second one lacks those in the
-- first, whose scores say when the session is to be settled again. The first argument is the name of the caller's process.
local GRACE = 3600 -- seconds after which the engine deletes what no call has swept
local KEPT = 86400 -- seconds for which sessions with open streams stay without a process that renews them
local MEMBERS = 2 * KEPT -- and members: they stay longer than the sessions whose streams they have open
local SLICE = 32
local PIECE = 50 -- how many streams one call closes, so that others need not wait for milliseconds
local sender = argument()
local posted = 0

-- Return the number of the member that has a token, nil if the token is stale.
local function holder(token)
    local number, secret = string.match(token, '^(%d+)%.(.+)$')
    if number and redis.call('HGET', root .. 'member:' .. number, 'token') == secret then
        return number
    end
end

-- Let what a member has stay for some days.
local function keep(name)
    expire(name, now + MEMBERS)
end

-- Let a member's lease last for so many seconds from the start of the call.
local function stay(number, duration)
    enter(root .. 'members', text(start + duration), number, now + MEMBERS + duration)
    for _, name in ipairs({'member:', 'mail:', 'letters:', 'opened:', 'carried:'}) do
        expire(root .. name .. number, now + MEMBERS + duration)
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
    keep(root .. 'mail:' .. number)
    keep(root .. 'letters:' .. number)
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

-- Return the fields for which there is an index of the sessions that lack them.
local function spares()
    return string.gmatch(redis.call('HGET', about, 'spares') or '', '%Z+')
end

-- Note that a session lacks a field and has no open stream, or no longer.
local function classify(key, field, expires, open, till)
    local name = root .. 'spare:' .. field
    if open or redis.call('HEXISTS', root .. 'session:' .. key, 'f:' .. field) == 1 then
        redis.call('ZREM', name, key)
    else
        enter(name, expires, key, till)
    end
end

-- Let what a session has live as long as the session. Call it when its end has changed, or its fields, or whether it has
-- open streams.
local function settle(key)
    local name = root .. 'session:' .. key
    local expires = redis.call('HGET', name, 'expires')
    if not expires then
        return
    end
    local open, till = has_open(key), tonumber(expires) + GRACE
    if open then
        till = math.max(till, now + KEPT)
    end
    enter(root .. 'sessions', open and text(till) or expires, key, till)
    expire(name, till)
    expire(root .. 'streams:' .. key, till)
    for field in spares() do
        classify(key, field, expires, open, till)
    end
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
        redis.call('ZADD', root .. 'opened:' .. member, text(now + KEPT / 2), label)
        keep(root .. 'opened:' .. member)
    end
    if carrier ~= '0' and carrier ~= member then
        redis.call('ZADD', root .. 'carried:' .. carrier, 0, label)
        keep(root .. 'carried:' .. carrier)
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

-- Close some of the streams of a session that no longer exists; tell their members, if they are to be told. Return
-- whether that was all.
local function clear(key, told)
    local name, members = root .. 'streams:' .. key, {}
    local streams = redis.call('HRANDFIELD', name, PIECE, 'WITHVALUES')
    for place = 1, #streams, 2 do
        local found = parse(streams[place + 1])
        members[found.member], members[found.carrier] = true, true
        close(key, streams[place], found)
    end
    for number in pairs(told and members or {}) do
        post(number, 'ended', key, '0', '')
    end
    if redis.call('EXISTS', name) == 1 then
        enter(root .. 'ending', text(now), key, now + KEPT)
        return false
    end
    redis.call('ZREM', root .. 'ending', key)
    return true
end

local function is_ending(key)
    return redis.call('ZSCORE', root .. 'ending', key)
end

-- Delete a session; return whether all its streams are closed.
local function delete(key, told)
    redis.call('UNLINK', root .. 'session:' .. key, root .. 'events:' .. key)
    redis.call('ZREM', root .. 'sessions', key)
    for field in spares() do
        redis.call('ZREM', root .. 'spare:' .. field, key)
    end
    return clear(key, told)
end

-- Delete a stream that a member has open, as that one will not end it; the one that carries it is told.
local function abandon(number, stream, key)
    local found = stream_of(key, stream)
    if not alive(key) then
        post(found.carrier, 'ended', key, '0', '')
    elseif found.carrier ~= number then
        tell(key, stream, found, true)
    end
    if found.member == number then
        close(key, stream, found)
        settle(key)
    end
    redis.call('ZREM', root .. 'opened:' .. number, stream .. ' ' .. key)
end

local function sweep()
    for _, key in ipairs(redis.call('ZRANGEBYSCORE', root .. 'sessions', '-inf', text(now), 'LIMIT', 0, SLICE)) do
        if not delete(key, false) then
            return
        end
    end
    for _, key in ipairs(redis.call('ZRANGE', root .. 'ending', 0, 0)) do
        clear(key, true)
    end
end
