#!lua flags=no-writes
local found = {}
while more() do
    local key = argument()
    found[#found + 1] = alive(key) and redis.call('HGET', task_at(key), 'version')
end
return answer('done', found)
