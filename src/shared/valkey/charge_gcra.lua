-- Charges plain gcra buckets, all of them or none: charge.lua for members that can deny and are charged, and ask for no lease.
--
-- KEYS: the buckets. ARGV: for each the cost's time and the burst's time in ns, both below 2^52, so that they are exact.
-- Answer: one text: the time in s and us, the first member that denies (0: none, the batch is charged), and the members' texts
-- before (- for none), with a blank between. Or 'general', with nothing written, if a text is not one of 19 digits: ask
-- charge.lua.

local call, sub = redis.call, string.sub
local time = redis.call('TIME')
local s, ns, denied, texts = time[1] + 0, time[2] * 1000, '0', ''
for i = 1, #KEYS do
    local text, full_in = call('GET', KEYS[i]), ARGV[2 * i - 1] + 0
    if text then
        if #text ~= 19 or not string.find(text, '^[1-9]%d+$') then return 'general' end
        -- Inexact only where it is far beyond the burst's time.
        local before = (sub(text, 1, 10) - s) * 1000000000 + sub(text, 11) - ns
        if before > 0 then full_in = full_in + before end
    end
    if full_in > ARGV[2 * i] + 0 and denied == '0' then denied = i end
    -- The arguments up to here have been read.
    ARGV[i] = full_in
    texts = texts .. ' ' .. (text or '-')
end
if denied == '0' then
    for i = 1, #KEYS do
        local at = ns + ARGV[i]
        local at_ns = at % 1000000000
        local text = string.format('%d%09d', s + (at - at_ns) / 1000000000, at_ns)
        call('SET', KEYS[i], text, 'PX', math.ceil(ARGV[i] / 1000000) + 60000)
    end
end
return time[1] .. ' ' .. time[2] .. ' ' .. denied .. texts
