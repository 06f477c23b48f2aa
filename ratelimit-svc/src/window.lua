-- Counts one request in the current window of Redis's own clock, unless the bucket is full.
-- KEYS[1]: merchant and bucket. ARGV: limit, window in milliseconds.
-- Returns {allowed, count, milliseconds until the window ends}.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local limit = tonumber(ARGV[1])
local window_ms = tonumber(ARGV[2])
local left_ms = window_ms - now_ms % window_ms
local key = KEYS[1] .. ':' .. string.format('%.0f', math.floor(now_ms / window_ms))
local count = tonumber(redis.call('GET', key) or '0')
if count >= limit then
    return {0, count, left_ms}
end
count = redis.call('INCR', key)
if count == 1 then
    redis.call('PEXPIRE', key, left_ms + 1000)
end
return {1, count, left_ms}
