-- Decides a batch of buckets at the server's time, and charges all of its members or none.
--
-- KEYS: the members' buckets. ARGV: 1 if a member asks for a lease, else 0; then for each member its rule (g, w or l), its mode
-- (0: can deny and is charged, 1: can deny, 2: is charged, 3: neither), its cost, the least ms for which its text is kept, and
-- the numbers of its rule (of w and l the last one is the quota or the drip rate without the call's factor); and if a member asks
-- for a lease, of each the units to lease (0 for none), a lease's length in ms, and the tag, the granted and the unspent units of
-- the lease that ends (0 0 0 for none).
-- Answer: the time in s and us, the first member that denies (0: none, the batch is charged; -1: a text is no bucket, nothing
-- is written), and the members' texts before; then, if a member asks for a lease, the units of each member's lease.
--
-- src/core/shared/decide.rs and lease.rs have the same steps in Rust, and text.rs the form of the texts. A number of Lua is
-- exact below 2^53. Nanoseconds since 1970 are not: they are pairs of seconds and nanoseconds.
--
-- A server runs this text from its beginning at each call, so that each function and each table costs time. The functions that
-- only leases need are made only for them.

local call, find, sub = redis.call, string.find, string.sub
local LAST_MS = 2127592613886
-- The longest time that a server accepts, about 146 years.
local LONGEST_MS = 4611686018427
-- The most units in a ledger that were drained early.
local MAX_DRAINED = 9007199254740991

local time, any_beside = redis.call('TIME'), false
local now_s, now_ns = time[1] + 0, time[2] * 1000
local unix_ms = now_s * 1000 + math.floor(now_ns / 1000000)
local now_ms = math.min(unix_ms, LAST_MS)
local answer = { time[1], time[2], 0 }
for i = 1, #KEYS do
    local text = call('GET', KEYS[i])
    answer[i + 3] = text
    any_beside = any_beside or (text and find(text, '[|~]'))
end

-- Whether a text is a number without a needless zero, of at most the digits of `largest`.
local function is_number(text, largest)
    return (find(text, '^[1-9]%d*$') or text == '0') and (#text < 20 or (#text == 20 and text <= largest))
end

-- The whole quotient of two whole numbers below 2^52: a double may be one too large.
local function quotient(a, b)
    local q = math.floor(a / b)
    if q * b > a then q = q - 1 end
    return q
end

-- A member `m` has its rule, the numbers of its limit, and its bucket in `a` and `b`: of g the time at which it is full, in s
-- and ns; of w the window's start in ms and the units used; of l the last drip in ms and the units in it; and of both in
-- `fills` the ms in which it fills from empty by the slowest factor of its calls, 0 if that is not known. It has the text of
-- the end of its block in `till`, groups of leases in `groups`, and the numbers of its ledger, as texts, in `ledger`, if its
-- text has them.

-- The bucket of a leaky bucket at a time, by a drip rate.
local function level(m, ms, rate)
    local at_ms = math.max(ms, m.a)
    local drips = quotient(at_ms - m.a, rate)
    local counter = m.b - drips * m.drip
    if counter <= 0 then return at_ms, 0 end
    return m.a + drips * rate, counter
end

-- The bucket after a charge, nil if it has too few units. Of g the units are a time in s and ns.
local function charged(m, units, more_s, more_ns)
    if m.rule == 'g' then
        local s, ns, most_s, most_ns = m.a, m.b, now_s + m.bo_s, now_ns + m.bo_ns
        if s < now_s or (s == now_s and ns < now_ns) then s, ns = now_s, now_ns end
        s, ns = s + more_s, ns + more_ns
        if ns >= 1000000000 then s, ns = s + 1, ns - 1000000000 end
        if most_ns >= 1000000000 then most_s, most_ns = most_s + 1, most_ns - 1000000000 end
        if s > most_s or (s == most_s and ns > most_ns) then return nil end
        return s, ns
    end
    local used = m.b + units
    if m.rule == 'l' then
        if used > m.size then return nil end
    else
        if m.b > m.quota or used > m.quota then return nil end
        if used > m.burst then
            -- Whether a * b <= c * d, for a and d below 2^24, b and c below 2^40: compared in two parts.
            local a, b, c, d = used - m.burst, m.length, math.max(now_ms, m.a) - m.a, m.quota - m.burst
            local BLOCK = 1048576
            local low1, low2 = a * (b % BLOCK), d * (c % BLOCK)
            local high1 = a * math.floor(b / BLOCK) + math.floor(low1 / BLOCK)
            local high2 = d * math.floor(c / BLOCK) + math.floor(low2 / BLOCK)
            if high1 > high2 or (high1 == high2 and low1 % BLOCK > low2 % BLOCK) then return nil end
        end
    end
    return m.a, used
end

local read_ledger, read_beside, guard, end_lease, lease
if any_beside or ARGV[1] == '1' then
    local floor, max, min = math.floor, math.max, math.min
    local G, ORIGIN_MS, MAX_LEASE, MAX_GROUP = 1000000000, 1577836800000, 1048575, 4194303
    local LARGEST = '18446744073709551615'

    -- Reads a ledger, which only the node's rules use. Returns nil for no ledger.
    function read_ledger(m, ledger)
        local from, numbers = 1, {}
        for i = 1, 7 do
            local colon = find(ledger, ':', from, true)
            if (colon == nil) ~= (i == 7) then return nil end
            numbers[i] = sub(ledger, from, (colon or 0) - 1)
            if not is_number(numbers[i], LARGEST) then return nil end
            from = colon and colon + 1
        end
        local needed_ms = numbers[2] + 0
        if needed_ms > LAST_MS or numbers[7] + 0 > MAX_DRAINED then return nil end
        m.ledger, m.needed_ms, m.beside_ms = numbers, needed_ms, needed_ms
        return true
    end

    -- The time of units of gcra, at most 2^23 of them.
    local function time_of(m, units)
        local ns = ARGV[m.at + 5] * units
        return ARGV[m.at + 4] * units + floor(ns / G), ns % G
    end

    local function burst_of(m) return tonumber(m.rule == 'g' and ARGV[m.at + 6] or m.size or m.burst) end

    local function units_of(m)
        local units = 0
        for _, group in ipairs(m.groups) do units = units + group.units end
        -- Of g units that take longer than 136 years are cut to as many, or to the burst if that is more.
        if m.rule == 'g' then units = min(units, max(floor(4294967296 / (ARGV[m.at + 4] + 1)), burst_of(m))) end
        return units
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
        if groups and (m.rule == 'w' or main == '') then return nil end
        if not is_number(till, LARGEST) or (main == '' and till == '0' and not m.ledger) then return nil end
        m.groups, m.till, m.blocked = groups, till ~= '0' and till, till + 0 > unix_ms
        m.beside_ms = max(m.beside_ms or 0, till + 0)
        return true
    end

    -- Takes care that the bucket has at most what a full one has less the units of the groups, at a time in s and ns.
    local function guard_at(m, s, ns)
        local units = units_of(m)
        if m.rule == 'g' then
            local more_s, more_ns = time_of(m, units)
            s, ns = s + more_s, ns + more_ns
            if ns >= G then s, ns = s + 1, ns - G end
            if s > m.a or (s == m.a and ns > m.b) then m.a, m.b = s, ns end
        elseif m.rule == 'l' then
            -- The units may have been spent by the limit itself at any time up to now: LeakyBucket::with_late_spends.
            local ms = min(s * 1000 + floor(ns / 1000000), LAST_MS)
            local last, own = level(m, ms, m.own_rate)
            if own > units then
                if m.rate >= m.own_rate then return end
                m.a, m.b = last, own
            end
            local _, counter = level(m, ms, m.rate)
            if own <= units or counter <= units then m.a, m.b = max(ms, m.a), max(counter, units) end
        end
    end

    -- Takes leases that are over for spent at their last moment, and guards the units of the others.
    function guard(m)
        while m.groups[1] and m.groups[1].till <= unix_ms do
            local till = m.groups[1].till
            guard_at(m, floor(till / 1000), till % 1000 * 1000000)
            table.remove(m.groups, 1)
        end
        if m.groups[1] then guard_at(m, now_s, now_ns) end
    end

    local function refund(m, units)
        if m.rule == 'g' then
            local s, ns = time_of(m, units)
            m.a, m.b = m.a - s, m.b - ns
            if m.b < 0 then m.a, m.b = m.a - 1, m.b + G end
            return
        end
        if m.rule == 'l' then m.a, m.b = level(m, now_ms, m.rate) end
        m.b = max(0, m.b - units)
        if m.b == 0 then m.a = max(m.a, now_ms) end
    end

    -- Gives the unspent units of a lease back. Returns whether the bucket has changed.
    function end_lease(m, tag, granted, unspent)
        unspent = min(unspent, granted, burst_of(m))
        if m.rule == 'w' then
            -- Reservations are behind a window with more than its quota: their times were promised.
            if unspent == 0 or m.b == 0 or m.b > m.quota or m.a ~= tag then return false end
            refund(m, unspent)
            return true
        end
        for i, group in ipairs(m.groups or {}) do
            if group.till == tag then
                if group.units < granted then return false end
                group.units = group.units - granted
                if group.units == 0 then table.remove(m.groups, i) end
                refund(m, unspent)
                if m.groups[1] then guard_at(m, now_s, now_ns) end
                return true
            end
        end
        return false
    end

    -- Takes units ahead: as many of `want`, halved again and again, as are half of what is there. Returns their number.
    function lease(m, want, length)
        local units = min(want, MAX_LEASE, floor(burst_of(m) / 2))
        local function after(more)
            if m.rule == 'g' then return charged(m, more, time_of(m, more)) end
            return charged(m, more)
        end
        while units > 0 and not after(2 * units) do units = floor(units / 2) end
        local till = (floor(unix_ms / length) + 2) * length
        if units == 0 or till < ORIGIN_MS or till > LAST_MS then return 0 end
        if m.rule ~= 'w' then
            local groups, place = m.groups or {}, nil
            for _, group in ipairs(groups) do
                if group.till == till or (not place and #groups == 2 and group.till > till) then place = group end
            end
            if not place and #groups == 2 then return 0 end
            if place then
                if place.units + units > MAX_GROUP then return 0 end
                place.units = place.units + units
            else
                table.insert(groups, groups[1] and till < groups[1].till and 1 or #groups + 1, { till = till, units = units })
            end
            m.groups = groups
        end
        m.a, m.b = after(units)
        return units
    end
end

-- Reads the text of a member's bucket, and brings it to the present. Returns nil for no bucket.
local function read(m, text)
    if text == '' then return nil end
    local main = text or ''
    if any_beside then
        local tilde = find(main, '~', 1, true)
        if tilde then
            if not read_ledger(m, sub(main, tilde + 1)) then return nil end
            main = sub(main, 1, tilde - 1)
        end
        local bar = find(main, '|', 1, true)
        if bar then
            local beside = sub(main, bar + 1)
            main = sub(main, 1, bar - 1)
            if not read_beside(m, main, beside) then return nil end
        end
    end
    if m.rule == 'g' then
        if main ~= '' then
            if not is_number(main, '10801208836854775806') then return nil end
            if #main > 9 then m.a, m.b = sub(main, 1, -10) + 0, sub(main, -9) + 0 end
        end
        if m.groups then guard(m) end
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
        m.a, m.b = math.max(at, 1577836800000), count
        m.began = m.a
    end
    if m.rule == 'l' then
        local at, count, has_groups = m.a, m.b, m.groups and m.groups[1]
        if m.groups then guard(m) end
        m.a, m.b = level(m, now_ms, m.rate)
        if m.own_rate > m.rate and count > 0 then
            -- What the limit itself would have left. Leases that have ended hide what has dripped out.
            local own = math.max(0, count - quotient(m.a - at, m.own_rate) * m.drip)
            m.drained = has_groups and count or own - m.b
            m.drained_ms = math.min(at + math.ceil(count / m.drip) * m.own_rate + 1, LAST_MS)
        end
        return true
    end
    local at_ms = math.max(now_ms, m.a)
    if m.b > m.quota then
        local passed = quotient(at_ms - m.a, m.length)
        m.a, m.b = m.a + passed * m.length, math.max(0, m.b - passed * m.quota)
    elseif at_ms - m.a >= m.length then
        m.b = 0
    end
    if m.b == 0 then m.a = at_ms end
    return true
end

-- Writes into the ledger that a call by a factor below 1 has let more drip out of the bucket than the limit itself.
local function count_drained(m)
    local ledger = m.ledger or { string.format('%d%09d', now_s, now_ns), '0', '0', '0', '0', '0', '0' }
    local needed_ms = math.max(ledger[2] + 0, m.drained_ms)
    ledger[2] = string.format('%d', needed_ms)
    ledger[7] = string.format('%d', math.min(ledger[7] + m.drained, MAX_DRAINED))
    m.ledger, m.beside_ms = ledger, math.max(m.beside_ms or 0, needed_ms)
end

-- The text of a member's bucket, and the ms until it and what is beside it are not needed any more, by the call's limit and by
-- the one without its factor.
local function written(m)
    local text, full_ms
    if m.rule == 'g' then
        text = string.format('%d%09d', m.a, m.b)
        full_ms = (m.a - now_s) * 1000 + math.ceil((m.b - now_ns) / 1000000)
    else
        text = string.format('%d:%d', m.a, m.b)
        full_ms = m.a - now_ms
        if m.fills > 0 then text = string.format('%s:%d', text, m.fills) end
        if m.rule == 'l' then
            full_ms = full_ms + math.ceil(m.b / m.drip) * math.max(m.rate, m.own_rate)
        else
            -- More than a window's units are used by reservations, and before a limit became smaller.
            full_ms = full_ms + math.ceil(m.b / math.min(m.quota, m.own_quota)) * m.length
        end
    end
    if not any_beside and not m.groups and not m.ledger then return text, full_ms end
    local groups = m.groups or {}
    if m.till or groups[1] then text = text .. '|' .. (m.till or '0') end
    for i = 1, #groups do
        text = text .. string.format('|%d|%d', groups[i].till, groups[i].units)
        -- A lease that ends leaves the bucket as if its units were spent at that moment.
        if i == #groups then full_ms = full_ms + math.max(0, groups[i].till - unix_ms) end
    end
    full_ms = math.max(full_ms, (m.beside_ms or 0) - unix_ms)
    if m.ledger then text = text .. '~' .. table.concat(m.ledger, ':') end
    return text, full_ms
end

local asks, at, denied, leased, writes = ARGV[1] == '1', 2, 0, {}, {}
for i = 1, #KEYS do
    local rule, mode, cost, keep_ms = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
    local m, cost_s, cost_ns
    at = at + 4
    if rule == 'g' then
        cost_s, cost_ns = ARGV[at], ARGV[at + 1]
        m = { rule = rule, at = at, a = 0, b = 0, bo_s = ARGV[at + 2] + 0, bo_ns = ARGV[at + 3] + 0 }
        at = at + 7
    elseif rule == 'w' then
        m = { rule = rule, a = 0, b = 0, quota = ARGV[at] + 0, burst = ARGV[at + 1] + 0, length = ARGV[at + 2] + 0, fills = 0 }
        m.own_quota = ARGV[at + 3] + 0
        at = at + 4
    else
        m = { rule = rule, a = 0, b = 0, size = ARGV[at] + 0, drip = ARGV[at + 1] + 0, rate = ARGV[at + 2] + 0, fills = 0 }
        m.own_rate = ARGV[at + 3] + 0
        at = at + 4
    end
    if not read(m, answer[i + 3]) then denied = -1 break end
    -- A ledger that is not needed any more is dropped. A window that owes units keeps its beginning, and so its ledger; and
    -- after a word from before, the clock may go back behind it.
    if m.ledger and m.needed_ms <= unix_ms and (rule == 'g' or not m.began or m.began >= m.needed_ms) then
        m.ledger = nil
    end
    local changed, want = false, 0
    if asks then
        leased[i], want = 0, ARGV[at] + 0
        if ARGV[at + 3] ~= '0' then
            changed = end_lease(m, ARGV[at + 2] + 0, ARGV[at + 3] + 0, ARGV[at + 4] + 0)
        end
    end
    local a, b = charged(m, cost, cost_s, cost_ns)
    if a and not m.blocked then
        if mode == '0' or mode == '2' then
            if cost ~= '0' then
                m.a, m.b, changed = a, b, true
                if (m.drained or 0) > 0 and m.drained_ms > unix_ms then count_drained(m) end
            end
            if want > 0 then
                leased[i] = lease(m, want, ARGV[at + 1] + 0)
                changed = changed or leased[i] > 0
            end
        end
    elseif (mode == '0' or mode == '1') and denied == 0 then
        denied = i
    end
    if asks then at = at + 5 end
    if changed then
        if rule ~= 'g' then
            m.fills = math.min(math.max(m.fills, keep_ms + 0), LONGEST_MS)
            keep_ms = m.fills
        end
        local text, full_ms = written(m)
        local n = #writes
        full_ms = math.min(math.max(full_ms, keep_ms + 0) + 60000, LONGEST_MS)
        writes[n + 1], writes[n + 2], writes[n + 3] = KEYS[i], text, full_ms
    end
end
if denied == 0 then
    for n = 1, #writes, 3 do call('SET', writes[n], writes[n + 1], 'PX', writes[n + 2]) end
end
answer[3] = denied
if asks then
    for i = 1, #KEYS do answer[#KEYS + 3 + i] = denied == 0 and leased[i] or 0 end
end
return answer
