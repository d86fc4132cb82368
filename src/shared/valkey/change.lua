-- Changes each bucket by a step, at the server's time: a refund, a settlement, a cancel, a reservation, a block.
--
-- ARGV, for each bucket: its rule, its step, the least ms for which its text is kept, four numbers of the step, and the numbers of
-- its rule, by a cost of one unit. The numbers of a step: `return`: of g a time in s and ns, else the units, and of w the start of
-- the window that was charged (-1: the present one); `owe`: of g a time and the longest debt's time, else the units, -1 and
-- the largest debt; `block`: a time; `reserve`: a time and the longest wait; `cancel`: a time, and the TAT that the reservation
-- wrote; `spend_up_to`: the units; `drain`: the units to leave. All times are in s and ns.
-- Answer: the time in s and us, and the texts before. If a text is no bucket, nothing is written, and the node finds it.

-- Whether a time is before another one.
local function is_before(s, ns, than_s, than_ns) return s < than_s or (s == than_s and ns < than_ns) end

local function sum(s, ns, more_s, more_ns)
    s, ns = s + more_s, ns + more_ns
    if ns >= G then return s + 1, ns - G end
    return s, ns
end

-- The charge of units, at most 2^53, by the numbers of the member's rule; nil if it has too few.
local function charge(m, units)
    if m.rule ~= 'g' then return charged(m, units) end
    local PART = 4194304
    local unit_s, unit_ns, low = ARGV[m.at], ARGV[m.at + 1], units % PART
    local high = unit_ns * ((units - low) / PART)
    local ns = unit_ns * low + high % G * PART
    return charged(m, units, unit_s * units + floor(high / G) * PART + floor(ns / G), ns % G)
end

-- The greatest number from `low` to `high` for which `is_so`, which is so for `low`.
local function greatest(low, high, is_so)
    while low < high do
        local middle = low + math.ceil((high - low) / 2)
        if is_so(middle) then low = middle else high = middle - 1 end
    end
    return low
end

-- The units that calls may spend now, at most `most`.
local function available(m, most)
    -- A factor below 1 makes a larger burst of gcra than that of the limit itself.
    local all = m.rule ~= 'g' and (m.size or m.quota) or 9007199254740992
    return greatest(0, min(most, all), function(units) return charge(m, units) end)
end

local steps = {}

steps['return'] = function(m, x1, x2)
    if m.rule == 'g' then
        if not is_before(now_s, now_ns, m.a, m.b) then return false end
        local s, ns = m.a - x1, m.b - x2
        if ns < 0 then s, ns = s - 1, ns + G end
        if is_before(s, ns, now_s, now_ns) then s, ns = now_s, now_ns end
        m.a, m.b = s, ns
        return x1 > 0 or x2 > 0
    end
    if m.rule == 'w' and x2 >= 0 and x2 ~= m.a then return false end
    local left = max(0, m.b - x1)
    if left == m.b then return false end
    if left == 0 then m.a = max(now_ms, m.a) end
    m.b = left
    return true
end

function steps.owe(m, x1, x2, x3, x4)
    if m.rule == 'g' then
        local base_s, base_ns = m.a, m.b
        if is_before(base_s, base_ns, now_s, now_ns) then base_s, base_ns = now_s, now_ns end
        local s, ns = sum(base_s, base_ns, x1, x2)
        local most_s, most_ns = sum(now_s, now_ns, sum(m.bo_s, m.bo_ns, x3, x4))
        if is_before(most_s, most_ns, s, ns) then s, ns = most_s, most_ns end
        if is_before(10801208836, 854775806, s, ns) then s, ns = 10801208836, 854775806 end
        if not is_before(base_s, base_ns, s, ns) then return false end
        m.a, m.b = s, ns
        return true
    end
    local most = m.size
    if m.rule == 'w' then
        most = greatest(m.burst, m.quota, function(units) return covers(m, units) end)
    end
    local owed = min(m.b + x1, most + x3, 16777215)
    if owed <= m.b then return false end
    m.b = owed
    return true
end

function steps.reset(m)
    if m.rule == 'g' then
        if not is_before(now_s, now_ns, m.a, m.b) then return false end
        m.a, m.b = now_s, now_ns
        return true
    end
    if m.b == 0 then return false end
    m.a, m.b = max(now_ms, m.a), 0
    return true
end

function steps.reserve(m, x1, x2, x3, x4)
    if m.blocked then return false end
    local s, ns = m.a, m.b
    if is_before(s, ns, now_s, now_ns) then s, ns = now_s, now_ns end
    s, ns = sum(s, ns, x1, x2)
    -- The time of the grant is the burst's time before.
    local now_bo_s, now_bo_ns = sum(now_s, now_ns, m.bo_s, m.bo_ns)
    local waits = is_before(now_bo_s, now_bo_ns, s, ns)
    local last_s, last_ns = sum(now_bo_s, now_bo_ns, x3, x4)
    if waits and ((m.groups and m.groups[1]) or is_before(last_s, last_ns, s, ns)) then return false end
    -- The clock of the node's rules stops at 2^62 - 1 ns after 2020.
    local stop_s, stop_ns = sum(6189522818, 427387902, m.bo_s, m.bo_ns)
    if is_before(stop_s, stop_ns, s, ns) then return false end
    m.a, m.b = s, ns
    return true
end

function steps.cancel(m, x1, x2, x3, x4)
    local now_bo_s, now_bo_ns = sum(now_s, now_ns, m.bo_s, m.bo_ns)
    local has_come = not is_before(now_bo_s, now_bo_ns, x3, x4)
    if not has_come and is_before(x3, x4, m.a, m.b) then return false end
    return steps['return'](m, x1, x2)
end

function steps.spend_up_to(m, x1)
    if m.blocked then return false end
    local units = available(m, x1)
    if units == 0 then return false end
    m.a, m.b = charge(m, units)
    return true
end

function steps.drain(m, x1)
    local units = available(m, 9007199254740992) - x1
    if units <= 0 then return false end
    m.a, m.b = charge(m, units)
    return true
end

local at, writes = 2, {}
for i = 1, #KEYS do
    local step, keep_ms = ARGV[at + 1], ARGV[at + 2]
    local x1, x2, x3, x4 = ARGV[at + 3] + 0, ARGV[at + 4] + 0, ARGV[at + 5] + 0, ARGV[at + 6] + 0
    local m, next_at = member(ARGV[at], at + 7)
    at = next_at
    if not read(m, answer[i + 3]) then writes = {} break end
    local n = #writes
    if step == 'block' or step == 'unblock' then
        local till = false
        if step == 'block' then
            local ms = min((now_s + x1) * 1000 + math.ceil((now_ns + x2) / 1000000), 18446744073710)
            till = m.till and m.till + 0 >= ms and m.till or string.format('%d', ms)
        end
        if till ~= (m.till or false) then
            m.till = till
            writes[n + 1], writes[n + 2], writes[n + 3], writes[n + 4] = KEYS[i], m, m.main, keep_ms
        end
    elseif step ~= 'look' and steps[step](m, x1, x2, x3, x4) then
        if m.groups and m.groups[1] then guard_at(m, now_s, now_ns) end
        writes[n + 1], writes[n + 2], writes[n + 3], writes[n + 4] = KEYS[i], m, main_of(m, keep_ms), keep_ms
    end
end
for n = 1, #writes, 4 do store(writes[n], writes[n + 1], writes[n + 2], writes[n + 3]) end
table.remove(answer, 3)
return answer
