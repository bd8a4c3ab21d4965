-- Every script begins with this. KEYS[1] is the key `about`; ARGV has the epoch, the time at which the call began, and
-- the longest time that it may have been under way, and then what the operation needs, which `argument` returns.
local about = KEYS[1]
local stamp = redis.call('TIME')
local now = tonumber(stamp[1]) + tonumber(stamp[2]) / 1000000
if redis.call('HGET', about, 'epoch') ~= ARGV[1] then
    return {stamp[1], stamp[2], 'lost'}
end
-- The names of all other keys have the epoch, so that nothing of another one is ever found.
local root = string.sub(about, 1, -6) .. ARGV[1] .. ':'
-- Leases count from here. The caller's clock may be wrong, so it can't choose a time that is impossible.
local start = math.min(now, math.max(tonumber(ARGV[2]), now - tonumber(ARGV[3])))

local taken = 3
local function argument()
    taken = taken + 1
    return ARGV[taken]
end
local function more()
    return taken < #ARGV
end

local function answer(...)
    return {stamp[1], stamp[2], ...}
end

local function text(number)
    return string.format('%.17g', number)
end

local function milliseconds(seconds)
    return string.format('%.0f', math.min(math.max(math.ceil(1000 * seconds), 1), 9e15))
end

-- Let a key live until a time in seconds, or without an end if that is nil.
local function expire(key, time)
    if time then
        redis.call('PEXPIREAT', key, milliseconds(time))
    else
        redis.call('PERSIST', key)
    end
end

-- Add a member to a sorted set, which then lives at least until a time, or without an end if that is nil.
local function enter(key, score, member, time)
    local fresh = redis.call('EXISTS', key) == 0
    redis.call('ZADD', key, score, member)
    if fresh or not time then
        expire(key, time)
    else
        redis.call('PEXPIREAT', key, milliseconds(time), 'GT')
    end
end
