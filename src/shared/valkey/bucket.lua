-- What charge.lua and change.lua share: this text stands in front of each of them.
--
-- KEYS: buckets. ARGV: 1 if a member asks for a lease, else 0; then for each bucket what its script says, which ends with the
-- numbers of its rule: of g (gcra) a cost's time and the burst's time, each in s and ns, the interval of the limit without the
-- call's factor in s and ns, and its burst; of w (windows) the quota, the burst, the window's ms, and the least quota with and
-- without the factor; of l (leaky buckets) the size, the drip size, the drip rate in ms, and the longest one with and without
-- the factor. Texts are kept by the last number.
-- Answer: the time in s and us, a number, and the buckets' texts before.
--
-- src/shared/protocol/ has the same steps in Rust (decide.rs, change.rs, lease.rs), and text.rs the form of the texts. A number of
-- Lua is exact below 2^53. Nanoseconds since 1970 are not: they are pairs of seconds and nanoseconds.
--
-- A server runs this text from its beginning at each call, so that each function and each table costs time. The functions that
-- only leases need are made only for them.

local call, find, sub = redis.call, string.find, string.sub
local floor, max, min, G = math.floor, math.max, math.min, 1000000000
local LAST_MS = 2127592613886
-- The longest time that a server accepts, about 146 years.
local LONGEST_MS = 4611686018427

local time, any_beside = redis.call('TIME'), false
local now_s, now_ns = time[1] + 0, time[2] * 1000
local unix_ms = now_s * 1000 + floor(now_ns / 1000000)
local now_ms = min(unix_ms, LAST_MS)
local answer = { time[1], time[2], 0 }
for i = 1, #KEYS do
    local text = call('GET', KEYS[i])
    answer[i + 3] = text
    any_beside = any_beside or (text and find(text, '|', 1, true))
end

-- Whether a text is a number without a needless zero, of at most the digits of `largest`.
local function is_number(text, largest)
    return (find(text, '^[1-9]%d*$') or text == '0') and (#text < 20 or (#text == 20 and text <= largest))
end

-- The whole quotient of two whole numbers below 2^52: a double may be one too large.
local function quotient(a, b)
    local q = floor(a / b)
    if q * b > a then q = q - 1 end
    return q
end

-- A member `m` has its rule, the numbers of its limit, and its bucket in `a` and `b`: of g the time at which it is full, in s
-- and ns; of w the window's start in ms and the units used; of l the last drip in ms and the units in it; and of both in
-- `fills` the ms in which it fills from empty by the slowest factor of its calls, 0 if that is not known. It has the text of
-- its bucket in `main`, that of the end of its block in `till`, and groups of leases in `groups`, if its text has them.
local function member(rule, at)
    if rule == 'g' then
        return { rule = rule, at = at, a = 0, b = 0, bo_s = ARGV[at + 2] + 0, bo_ns = ARGV[at + 3] + 0 }, at + 7
    end
    local m = { rule = rule, a = 0, b = 0, fills = 0 }
    if rule == 'w' then
        m.quota, m.burst, m.length, m.least_quota = ARGV[at] + 0, ARGV[at + 1] + 0, ARGV[at + 2] + 0, ARGV[at + 3] + 0
    else
        m.size, m.drip, m.rate, m.longest_rate = ARGV[at] + 0, ARGV[at + 1] + 0, ARGV[at + 2] + 0, ARGV[at + 3] + 0
    end
    return m, at + 4
end

-- Whether the units that a window has brought since its start are at least `used`.
local function covers(m, used)
    if used <= m.burst then return true end
    -- Whether a * b <= c * d, for a and d below 2^24, b and c below 2^40: compared in two parts.
    local a, b, c, d = used - m.burst, m.length, max(now_ms, m.a) - m.a, m.quota - m.burst
    local BLOCK = 1048576
    local low1, low2 = a * (b % BLOCK), d * (c % BLOCK)
    local high1 = a * floor(b / BLOCK) + floor(low1 / BLOCK)
    local high2 = d * floor(c / BLOCK) + floor(low2 / BLOCK)
    return high1 < high2 or (high1 == high2 and low1 % BLOCK <= low2 % BLOCK)
end

-- The bucket after a charge, nil if it has too few units. Of g the units are a time in s and ns.
local function charged(m, units, more_s, more_ns)
    if m.rule == 'g' then
        local s, ns, most_s, most_ns = m.a, m.b, now_s + m.bo_s, now_ns + m.bo_ns
        if s < now_s or (s == now_s and ns < now_ns) then s, ns = now_s, now_ns end
        s, ns = s + more_s, ns + more_ns
        if ns >= G then s, ns = s + 1, ns - G end
        if most_ns >= G then most_s, most_ns = most_s + 1, most_ns - G end
        if s > most_s or (s == most_s and ns > most_ns) then return nil end
        return s, ns
    end
    local used = m.b + units
    if m.rule == 'l' then
        if used > m.size then return nil end
    elseif m.b > m.quota or used > m.quota or not covers(m, used) then
        return nil
    end
    return m.a, used
end

local read_beside, guard_at, time_of, burst_of
if any_beside or ARGV[1] == '1' then
    local ORIGIN_MS, MAX_GROUP, LARGEST = 1577836800000, 4194303, '18446744073709551615'

    -- The time of units of gcra, at most 2^23 of them.
    function time_of(m, units)
        local ns = ARGV[m.at + 5] * units
        return ARGV[m.at + 4] * units + floor(ns / G), ns % G
    end

    function burst_of(m) return tonumber(ARGV[m.at + 6]) end

    -- Takes care that the bucket has at most what a full one has less the units of the groups, at a time in s and ns.
    function guard_at(m, s, ns)
        local units = 0
        for _, group in ipairs(m.groups) do units = units + group.units end
        -- Units that take longer than 136 years are cut to as many, or to the burst if that is more.
        units = min(units, max(floor(4294967296 / (ARGV[m.at + 4] + 1)), burst_of(m)))
        local more_s, more_ns = time_of(m, units)
        s, ns = s + more_s, ns + more_ns
        if ns >= G then s, ns = s + 1, ns - G end
        if s > m.a or (s == m.a and ns > m.b) then m.a, m.b = s, ns end
    end

    -- Reads what a text has after the bucket: the end of the block, and the groups of leases. Returns nil for no bucket.
    function read_beside(m, main, beside)
        local bar, groups = find(beside, '|', 1, true), nil
        local till, from = sub(beside, 1, (bar or 0) - 1), bar and bar + 1
        while from do
            groups = groups or {}
            bar = find(beside, '|', from, true)
            if not bar or #groups == 2 then return nil end
            local next_bar = find(beside, '|', bar + 1, true)
            local ends, units = sub(beside, from, bar - 1), sub(beside, bar + 1, (next_bar or 0) - 1)
            if not is_number(ends, LARGEST) or not is_number(units, LARGEST) then return nil end
            ends, units = ends + 0, units + 0
            local after = groups[1] and groups[1].till or ORIGIN_MS - 1
            if ends <= after or ends > LAST_MS or units < 1 or units > MAX_GROUP then return nil end
            groups[#groups + 1] = { till = ends, units = units }
            from = next_bar and next_bar + 1
        end
        if groups and (m.rule ~= 'g' or main == '') then return nil end
        if not is_number(till, LARGEST) or (main == '' and till == '0') then return nil end
        m.groups, m.till, m.blocked = groups, till ~= '0' and till, till + 0 > unix_ms
        return true
    end
end

-- Reads the text of a member's bucket, and brings it to the present. Returns nil for no bucket.
local function read(m, text)
    if text == '' then return nil end
    local main = text or ''
    local bar = any_beside and find(main, '|', 1, true)
    if bar then
        local beside = sub(main, bar + 1)
        main = sub(main, 1, bar - 1)
        if not read_beside(m, main, beside) then return nil end
    end
    m.main = main
    if m.rule == 'g' then
        if main ~= '' then
            if not is_number(main, '10801208836854775806') then return nil end
            if #main > 9 then m.a, m.b = sub(main, 1, -10) + 0, sub(main, -9) + 0 end
            -- A bucket that was full in 2020 is full.
            if m.a < 1577836800 then m.main = '1577836800000000000' end
        end
        if m.groups then
            -- Takes leases that are over for spent at their last moment, and guards the units of the others.
            while m.groups[1] and m.groups[1].till <= unix_ms do
                local till = m.groups[1].till
                guard_at(m, floor(till / 1000), till % 1000 * 1000000)
                table.remove(m.groups, 1)
            end
            if m.groups[1] then guard_at(m, now_s, now_ns) end
            m.main = string.format('%d%09d', m.a, m.b)
        end
        return true
    end
    if main ~= '' then
        local colon = find(main, ':', 1, true)
        if not colon then return nil end
        local at, count = sub(main, 1, colon - 1), sub(main, colon + 1)
        local second = find(count, ':', 1, true)
        if second then
            local fills = sub(count, second + 1)
            count = sub(count, 1, second - 1)
            if not is_number(fills, '') or #fills > 13 or fills == '0' or fills + 0 > LONGEST_MS then
                return nil
            end
            m.fills = fills + 0
        end
        if not is_number(at, '') or not is_number(count, '') then return nil end
        at, count = at + 0, count + 0
        if at > LAST_MS or count > 16777215 then return nil end
        m.a, m.b = max(at, 1577836800000), count
        if m.a > at then m.main = '1577836800000' .. sub(main, colon) end
    end
    local at_ms = max(now_ms, m.a)
    if m.rule == 'l' then
        local drips = quotient(at_ms - m.a, m.rate)
        m.b = max(0, m.b - drips * m.drip)
        m.a = m.a + drips * m.rate
    elseif m.b > m.quota then
        local passed = quotient(at_ms - m.a, m.length)
        m.a, m.b = m.a + passed * m.length, max(0, m.b - passed * m.quota)
    elseif at_ms - m.a >= m.length then
        m.b = 0
    end
    if m.b == 0 then m.a = at_ms end
    return true
end

-- The ms until a member's bucket is full, by the call's limit and by the one without its factor.
local function full_in_ms(m)
    if m.rule == 'g' then return (m.a - now_s) * 1000 + math.ceil((m.b - now_ns) / 1000000) end
    if m.rule == 'l' then return m.a - now_ms + math.ceil(m.b / m.drip) * max(m.rate, m.longest_rate) end
    -- More than a window's units are used by debt, and before a limit became smaller.
    return m.a - now_ms + math.ceil(m.b / min(m.quota, m.least_quota)) * m.length
end

-- Stores a member's bucket, whose own text is `main`, for at least `keep_ms`. A text that says nothing is removed.
local function store(key, m, main, keep_ms)
    local groups, text = m.groups or {}, main
    local keep = max(full_in_ms(m), keep_ms + 0, m.fills or 0)
    if m.till or groups[1] then text = text .. '|' .. (m.till or '0') end
    if m.till then keep = max(keep, m.till - unix_ms) end
    for i = 1, #groups do
        text = text .. string.format('|%d|%d', groups[i].till, groups[i].units)
        -- A lease that ends leaves the bucket as if its units were spent at that moment.
        if i == #groups then keep = max(keep, full_in_ms(m) + max(0, groups[i].till - unix_ms)) end
    end
    if text == '' then return call('DEL', key) end
    call('SET', key, text, 'PX', string.format('%d', min(keep + 60000, LONGEST_MS)))
end

-- The text of a member's bucket after a charge. `keep_ms`: the time in which it fills for the call.
local function main_of(m, keep_ms)
    if m.rule == 'g' then return string.format('%d%09d', m.a, m.b) end
    m.fills = min(max(m.fills, keep_ms + 0), LONGEST_MS)
    if m.fills > 0 then return string.format('%d:%d:%d', m.a, m.b, m.fills) end
    return string.format('%d:%d', m.a, m.b)
end
