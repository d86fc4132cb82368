-- Charges plain gcra buckets, all of them or none: charge.lua for members that can deny and are charged, and ask for no lease.
--
-- KEYS: the buckets. ARGV: for each the cost's time, the burst's time and the interval of the limit without the call's factor in
-- ns, all below 2^52, so that they are exact, and the burst of that limit.
-- Answer: one text: the time in s and us, the first member that denies (0: none, the batch is charged), and the members' texts
-- before (- for none), with a blank between. If a text is not one of 19 digits, as that of a blocked id, charge.lua decides, which
-- stands behind this text, and gives its own answer.

local call, sub = redis.call, string.sub
local time = redis.call('TIME')
local s, ns, denied, texts, is_plain = time[1] + 0, time[2] * 1000, '0', '', true
local fulls = {}
for i = 1, #KEYS do
    local text, full_in = call('GET', KEYS[i]), ARGV[4 * i - 3] + 0
    if text then
        is_plain = is_plain and #text == 19 and string.find(text, '^[1-9]%d+$')
        if not is_plain then break end
        -- Inexact only where it is far beyond the burst's time.
        local before = (sub(text, 1, 10) - s) * 1000000000 + sub(text, 11) - ns
        if before > 0 then full_in = full_in + before end
    end
    if full_in > ARGV[4 * i - 2] + 0 and denied == '0' then denied = i end
    fulls[i] = full_in
    texts = texts .. ' ' .. (text or '-')
end
if is_plain then
    if denied == '0' then
        for i = 1, #KEYS do
            local at = ns + fulls[i]
            local at_ns = at % 1000000000
            local text = string.format('%d%09d', s + (at - at_ns) / 1000000000, at_ns)
            call('SET', KEYS[i], text, 'PX', math.ceil(fulls[i] / 1000000) + 60000)
        end
    end
    return time[1] .. ' ' .. time[2] .. ' ' .. denied .. texts
end

-- The arguments of charge.lua.
for i = #KEYS, 1, -1 do
    local from, to = 4 * i - 4, 11 * i - 10
    local times, burst = { ARGV[from + 1], ARGV[from + 2], ARGV[from + 3] }, ARGV[from + 4]
    ARGV[to + 1], ARGV[to + 2], ARGV[to + 3], ARGV[to + 4] = 'g', '0', '1', '0'
    for n = 1, 3 do
        local in_ns = times[n] % 1000000000
        ARGV[to + 3 + 2 * n], ARGV[to + 4 + 2 * n] = (times[n] - in_ns) / 1000000000, in_ns
    end
    ARGV[to + 11] = burst
end
ARGV[1] = '0'
