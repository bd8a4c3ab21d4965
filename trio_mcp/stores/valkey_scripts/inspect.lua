#!lua flags=no-writes
-- Count what lies under a prefix. ARGV: the layout.
local about = KEYS[1]
local stamp = redis.call('TIME')
local kind = redis.call('TYPE', about).ok
if kind == 'none' then
    return {stamp[1], stamp[2], 'none'}
elseif kind ~= 'hash' then
    return {stamp[1], stamp[2], 'foreign'}
end
local layout, epoch, server = unpack(redis.call('HMGET', about, 'layout', 'epoch', 'server'))
if not layout or not epoch then
    return {stamp[1], stamp[2], 'foreign'}
elseif layout ~= ARGV[1] then
    return {stamp[1], stamp[2], 'layout', layout}
end
local root = string.sub(about, 1, -6) .. epoch .. ':'
local now = string.format('(%.17g', tonumber(stamp[1]) + tonumber(stamp[2]) / 1000000)
local counts, running = {}, 0
for _, key in ipairs(redis.call('ZRANGEBYSCORE', root .. 'tasks', now, '+inf')) do
    local status, token = unpack(redis.call('HMGET', root .. 'task:' .. key, 'status', 'token'))
    if status then
        counts[status] = (counts[status] or 0) + 1
        running = running + (token == '' and 0 or 1)
    end
end
local members, streams = redis.call('ZRANGE', root .. 'members', 0, -1), 0
for _, number in ipairs(members) do
    streams = streams + redis.call('ZCARD', root .. 'opened:' .. number)
end
local tasks = {}
for status, count in pairs(counts) do
    tasks[#tasks + 1] = status
    tasks[#tasks + 1] = count
end
return {
    stamp[1],
    stamp[2],
    'done',
    server,
    tasks,
    running,
    redis.call('ZCOUNT', root .. 'sessions', now, '+inf'),
    streams,
    #members,
    redis.call('XLEN', root .. 'log'),
    redis.call('ZCARD', root .. 'topics'),
}
