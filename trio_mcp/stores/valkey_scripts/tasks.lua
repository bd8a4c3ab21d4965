-- Tasks. `task:KEY` is a hash of columns, `journal:KEY` one of entries, each value after its number and a colon. The
-- sorted set `tasks` has all keys by expiry. `ready:TOOL` and `leased:TOOL` have those that may be claimed, by creation
-- and by the end of the lease, each key after the number of the task: sorted sets order equal scores by member.
local GRACE = 3600 -- seconds after which the engine deletes what no call has swept
local SLICE = 32
local COLUMNS = {'head', 'tool', 'status', 'created', 'expires', 'version', 'token', 'body', 'asked', 'result'}
local BLOBS = {body = true, asked = true, result = true}

local function task_at(key)
    return root .. 'task:' .. key
end

local function journal_at(key)
    return root .. 'journal:' .. key
end

local function end_of(expires)
    return expires ~= '' and tonumber(expires) or nil
end

local function grace(expires)
    local time = end_of(expires)
    return time and time + GRACE
end

local function alive(key)
    local expires = redis.call('HGET', task_at(key), 'expires')
    return expires and (expires == '' or tonumber(expires) > now)
end

local function columns(key)
    return redis.call('HMGET', task_at(key), unpack(COLUMNS))
end

-- Hide a task from claims; show it again once it has changed.
local function hide(key)
    local tool, place = unpack(redis.call('HMGET', task_at(key), 'tool', 'place'))
    if tool then
        redis.call('ZREM', root .. 'ready:' .. tool, place .. key)
        redis.call('ZREM', root .. 'leased:' .. tool, place .. key)
    end
end

local function show(key)
    local tool, status, created, expires, token, till, place =
        unpack(redis.call('HMGET', task_at(key), 'tool', 'status', 'created', 'expires', 'token', 'till', 'place'))
    if status == 'working' and token == '' then
        enter(root .. 'ready:' .. tool, created, place .. key, grace(expires))
    elseif status == 'working' then
        enter(root .. 'leased:' .. tool, till, place .. key, grace(expires))
    end
end

local function drop(key)
    hide(key)
    redis.call('UNLINK', task_at(key), journal_at(key))
    redis.call('ZREM', root .. 'tasks', key)
end

local function sweep()
    for _, key in ipairs(redis.call('ZRANGEBYSCORE', root .. 'tasks', '-inf', text(now), 'LIMIT', 0, SLICE)) do
        drop(key)
    end
end

-- Store the columns that follow in ARGV.
local function write(key)
    local name = task_at(key)
    for _, column in ipairs(COLUMNS) do
        local value = argument()
        if value == '' and BLOBS[column] then
            redis.call('HDEL', name, column)
        else
            redis.call('HSET', name, column, value)
        end
    end
    local expires = redis.call('HGET', name, 'expires')
    expire(name, grace(expires))
    enter(root .. 'tasks', expires == '' and '+inf' or expires, key, grace(expires))
end

-- Add the entries that follow in ARGV to the journal.
local function write_journal(key)
    local name = journal_at(key)
    while more() do
        local entry, value = argument(), argument()
        redis.call('HSETNX', name, entry, redis.call('HLEN', name) .. ':' .. value)
    end
    expire(name, grace(redis.call('HGET', task_at(key), 'expires')))
end

local function lease(key, token, till)
    redis.call('HSET', task_at(key), 'token', token, 'till', text(till))
end
