#!lua flags=allow-oom
local key = argument()
if alive(key) then
    finish(key)
end
return reply('done')
