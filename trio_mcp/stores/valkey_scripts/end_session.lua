#!lua flags=allow-oom
-- The first call deletes the session; it and those that follow close its streams.
local key, ended = argument(), true
if alive(key) then
    ended = delete(key, true)
elseif is_ending(key) then
    ended = clear(key, true)
end
return reply(ended and 'done' or 'more')
