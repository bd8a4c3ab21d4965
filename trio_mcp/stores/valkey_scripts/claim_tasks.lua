#!lua
sweep()
local duration, most = tonumber(argument()), tonumber(argument())
local tokens, found = {}, {}
for number = 1, most do
    tokens[number] = argument()
end

-- Collect a task that is there; take one out that has gone. Return whether it is there.
local function collect(name, member, lost)
    local key = string.sub(member, 16)
    if not alive(key) then
        redis.call('ZREM', name, member)
        return false
    end
    local created = tonumber(redis.call('HGET', task_at(key), 'created'))
    found[#found + 1] = {created = created, member = member, key = key, lost = lost}
    return true
end

while more() do
    local tool = argument()
    local ready, leased = root .. 'ready:' .. tool, root .. 'leased:' .. tool
    local count = 0
    while count < most do
        local members = redis.call('ZRANGE', ready, count, most - 1)
        if #members == 0 then
            break
        end
        for _, member in ipairs(members) do
            if collect(ready, member, 0) then
                count = count + 1
            end
        end
    end
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', leased, '-inf', text(now))) do
        collect(leased, member, 1)
    end
end

table.sort(found, function(one, other)
    if one.created == other.created then
        return one.member < other.member
    end
    return one.created < other.created
end)
local claims = {}
for number = 1, math.min(most, #found) do
    local each = found[number]
    hide(each.key)
    redis.call('HINCRBY', task_at(each.key), 'version', 1)
    lease(each.key, tokens[number], start + duration)
    show(each.key)
    claims[number] = {each.lost, each.key, columns(each.key)}
end
return answer('done', claims)
