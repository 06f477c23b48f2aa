-- Counts requests in the current window of Redis's own clock: of each bucket as many as still fit.
-- KEYS: buckets, none of them twice.
-- ARGV: window in milliseconds, then for each bucket its limit and how many requests ask.
-- Returns milliseconds until the window ends, and for each bucket how many had passed before, at
-- most its limit.
local call = redis.call
local time = call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local window_ms = tonumber(ARGV[1])
local left_ms = window_ms - now_ms % window_ms
local window = ':' .. string.format('%.0f', math.floor(now_ms / window_ms))
local keys = {}
for i, bucket in ipairs(KEYS) do
    keys[i] = bucket .. window
end
local counts = call('MGET', unpack(keys))
local passed = {}
for i, key in ipairs(keys) do
    local limit, asking = tonumber(ARGV[2 * i]), tonumber(ARGV[2 * i + 1])
    -- What is no count is replaced: an error would end the script for all buckets.
    local count = tonumber(string.match(counts[i] or '', '^%d%d?%d?%d?%d?%d?%d?%d?%d?$') or '')
    passed[i] = math.min(count or 0, limit)
    local passing = math.min(asking, limit - passed[i])
    if not count then
        call('SET', key, passing, 'PX', left_ms + 1000)
    elseif passing > 0 then
        call('INCRBY', key, passing)
    end
end
return {left_ms, passed}
