"""The Lua that Redis runs. Each change of an account is one script: it happens whole or not at all, for all gateways at once.

An account is three keys with one hash tag: a hash with the moments at which each limit per minute is full again (`r`, `t`, in
seconds of the server's clock) and the dollars held (`h`); a sorted set of leases, one per request in flight, scored by when it
lapses and named `id|dollars held`; and the dollars spent in the current period. A lease that nobody renews belongs to a gateway
that died: the next script drops it with what it held. Where the dollars spent are missing, because the server is new or lost
its memory, they begin at `floor`, the gateway's own record. A mark of two minutes for each cost (the fourth key of `SETTLE`)
keeps a gateway that heard no answer, and sends a cost again, from charging it twice. The arguments are one MessagePack array,
which costs the client less than many arguments do; numbers come back as text, because Redis cuts fractions off.
"""

_COMMON = """
local function text(number) return string.format('%.17g', number) end
local function keep(key, seconds)
  local wanted = math.ceil(seconds * 1000)
  if redis.call('PTTL', key) < wanted then redis.call('PEXPIRE', key, wanted) end
end
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local args = cmsgpack.unpack(ARGV[1])
"""

RESERVE = (
    _COMMON
    + """
local rpm, tpm, tokens = args[1], args[2], args[3]
local concurrency, budget, estimate = args[4], args[5], args[6]
local floor, lease, lease_s, spend_s = args[7], args[8], args[9], args[10]

local account = redis.call('HMGET', KEYS[1], 'r', 't', 'h')
local r = math.max(tonumber(account[1] or 0), now)
local t = math.max(tonumber(account[2] or 0), now)
local held = tonumber(account[3] or 0)

for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, 100)) do
  redis.call('ZREM', KEYS[2], member)
  held = held - tonumber(string.match(member, '|(.*)$'))
end
local in_flight = redis.call('ZCARD', KEYS[2])
if in_flight == 0 or held < 0 then held = 0 end

local spent = 0
if budget > 0 then
  local known = redis.call('GET', KEYS[3])
  spent = tonumber(known or floor)
  if not known then redis.call('SET', KEYS[3], text(spent), 'EX', spend_s) end
end

local requests_left = rpm - (r - now) * rpm / 60
local tokens_left = tpm - (t - now) * tpm / 60
local verdict = ''
if budget > 0 and spent >= budget then verdict = 'budget'
elseif budget > 0 and spent + held >= budget then verdict = 'held'
elseif concurrency > 0 and in_flight >= concurrency then verdict = 'concurrency'
elseif rpm > 0 and requests_left + rpm * 1e-7 < math.min(1, rpm) then verdict = 'requests'
elseif tpm > 0 and tokens_left + tpm * 1e-7 < math.min(tokens, tpm) then verdict = 'tokens'
else
  if rpm > 0 then r = r + 60 / rpm; requests_left = requests_left - 1 end
  if tpm > 0 then t = t + tokens * 60 / tpm; tokens_left = tokens_left - tokens end
  if lease ~= '' then
    held = held + estimate
    in_flight = in_flight + 1
    redis.call('ZADD', KEYS[2], text(now + lease_s), lease)
    keep(KEYS[2], lease_s + 1)
  end
end
redis.call('HSET', KEYS[1], 'r', text(r), 't', text(t), 'h', text(held))
keep(KEYS[1], math.max(r - now, t - now, lease_s) + 1)
return {verdict, text(requests_left), text(tokens_left), in_flight, text(spent), text(held)}
"""
)

SETTLE = (
    _COMMON
    + """
local tpm, extra, estimate = args[1], args[2], args[3]
local lease, cost, floor, spend_s = args[4], args[5], args[6], args[7]

local account = redis.call('HMGET', KEYS[1], 't', 'h')
local t = tonumber(account[1] or 0)
local held = tonumber(account[2] or 0)
if tpm > 0 then
  if extra > 0 then t = math.max(t, now) end
  t = t + extra * 60 / tpm
end
if lease ~= '' and redis.call('ZREM', KEYS[2], lease) == 1 then held = math.max(held - estimate, 0) end
redis.call('HSET', KEYS[1], 't', text(t), 'h', text(held))
keep(KEYS[1], math.max(t - now, 60) + 1)
if cost > 0 and redis.call('SET', KEYS[4], '1', 'NX', 'EX', 120) then
  redis.call('SET', KEYS[3], text(tonumber(redis.call('GET', KEYS[3]) or floor) + cost), 'EX', spend_s)
end
return 1
"""
)

RENEW = (
    _COMMON
    + """
local lease_s = args[1]
local returned = 0
for i = 2, #args do
  if redis.call('ZADD', KEYS[2], text(now + lease_s), args[i]) == 1 then
    returned = returned + tonumber(string.match(args[i], '|(.*)$'))
  end
end
if returned > 0 then
  redis.call('HSET', KEYS[1], 'h', text(tonumber(redis.call('HGET', KEYS[1], 'h') or 0) + returned))
end
keep(KEYS[1], lease_s + 1)
keep(KEYS[2], lease_s + 1)
return 1
"""
)
