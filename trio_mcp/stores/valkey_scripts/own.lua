#!lua
local server = argument()
redis.call('HSETNX', about, 'server', server)
return answer('done', redis.call('HGET', about, 'server'))
