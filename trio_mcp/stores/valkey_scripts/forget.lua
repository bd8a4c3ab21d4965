#!lua flags=allow-oom
-- What is left in `log` has no messages, and goes when it is old.
redis.call('UNLINK', root .. 'events:' .. argument())
return reply('done')
