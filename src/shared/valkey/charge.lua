-- Decides a batch of buckets at the server's time, and charges all of its members or none.
--
-- KEYS: the members' buckets. ARGV: the slack in ms; then for each member its rule (g, w or l), its mode (0: can deny and is
-- charged, 1: can deny, 2: is charged, 3: neither), its cost, the least ms for which its text is kept, and the numbers of its rule; and if the
-- rule is a capital letter, the units to lease, a lease's length in ms, and the tag, the granted and the unspent units of the
-- lease that ends (0 0 0 for none).
-- Answer: the time in s and us, the first member that denies (0: none, the batch is charged; -1: a text is no bucket, nothing
-- is written), and the members' texts before; then, if a member asks for a lease, the units of each member's lease.
--
-- src/core/shared/decide.rs and lease.rs have the same steps in Rust, and text.rs the form of the texts. A number of Lua is
-- exact below 2^53. Nanoseconds since 1970 are not: they are pairs of seconds and nanoseconds.

local find, sub, byte, floor, format = string.find, string.sub, string.byte, math.floor, string.format
local G, BLOCK = 1000000000, 1048576
local ORIGIN_MS, LAST_MS, MAX_COUNT = 1577836800000, 2127592613886, 16777215
local MAX_LEASE, MAX_GROUP = 1048575, 4194303
local LARGEST_TAT, LARGEST = '10801208836854775806', '18446744073709551615'

-- Whether a text is a number without sign, blank or needless zero, of at most the digits of `largest`.
local function is_number(text, largest)
    return find(text, '^%d+$') and (byte(text) ~= 48 or text == '0')
        and (#text < 20 or (#text == 20 and text <= largest))
end

-- The whole quotient of two whole numbers below 2^52: a double may be one too large.
local function quotient(a, b)
    local q = floor(a / b)
    if q * b > a then q = q - 1 end
    return q
end

-- Whether a * b <= c * d, for a and d below 2^24, b and c below 2^40: compared in two parts.
local function product_fits(a, b, c, d)
    local low1, low2 = a * (b % BLOCK), d * (c % BLOCK)
    local high1 = a * floor(b / BLOCK) + floor(low1 / BLOCK)
    local high2 = d * floor(c / BLOCK) + floor(low2 / BLOCK)
    return high1 < high2 or (high1 == high2 and low1 % BLOCK <= low2 % BLOCK)
end

-- The time and the units of a text with both; nil for no bucket.
local function timed_count(main)
    if main == '' then return 0, 0 end
    local colon = find(main, ':', 1, true)
    if not colon then return nil end
    local at, count = sub(main, 1, colon - 1), sub(main, colon + 1)
    if not is_number(at, LARGEST) or not is_number(count, LARGEST) then return nil end
    at, count = tonumber(at), tonumber(count)
    if at > LAST_MS or count > MAX_COUNT then return nil end
    return math.max(at, ORIGIN_MS), count
end

local function is_later(s, ns, than_s, than_ns) return s > than_s or (s == than_s and ns > than_ns) end

local function sum(s, ns, more_s, more_ns)
    s, ns = s + more_s, ns + more_ns
    if ns >= G then return s + 1, ns - G end
    return s, ns
end

-- The time of units of gcra, at most 2^23 of them.
local function time_of(m, units)
    local ns = m.ei_ns * units
    return m.ei_s * units + floor(ns / G), ns % G
end

-- A rule `m` of a member has its numbers and its bucket, and these functions: `read` takes the bucket from its text, and
-- returns nil for no bucket; `enter` brings it to the present; `fits` tells whether units are there; `charge` takes them;
-- `refund` gives them back; `guard` takes care that the bucket has at most what a full one has less the units, at a time in ms
-- (nil: now); `text` returns its text, and `full_ms` the ms until it is full.

local gcra = { counts = 7 }

function gcra.numbers(m, at)
    m.cost_s, m.cost_ns = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
    m.bo_s, m.bo_ns = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
    m.ei_s, m.ei_ns, m.burst = tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5]), tonumber(ARGV[at + 6])
end

function gcra.read(m, main)
    m.s, m.ns = 0, 0
    if main == '' then return true end
    if not is_number(main, LARGEST_TAT) then return nil end
    if #main > 9 then m.s, m.ns = tonumber(sub(main, 1, -10)), tonumber(sub(main, -9)) end
    return true
end

function gcra.enter() end

function gcra.guard(m, units, at_ms)
    local s, ns = m.now.s, m.now.ns
    if at_ms then s, ns = floor(at_ms / 1000), at_ms % 1000 * 1000000 end
    s, ns = sum(s, ns, time_of(m, units))
    if is_later(s, ns, m.s, m.ns) then m.s, m.ns = s, ns end
end

-- The time at which the bucket is full after a charge.
local function full_after(m, more_s, more_ns)
    if is_later(m.s, m.ns, m.now.s, m.now.ns) then return sum(m.s, m.ns, more_s, more_ns) end
    return sum(m.now.s, m.now.ns, more_s, more_ns)
end

local function gcra_fits(m, s, ns)
    local most_s, most_ns = sum(m.now.s, m.now.ns, m.bo_s, m.bo_ns)
    return not is_later(s, ns, most_s, most_ns)
end

function gcra.cost_fits(m) return gcra_fits(m, full_after(m, m.cost_s, m.cost_ns)) end
function gcra.charge_cost(m) m.s, m.ns = full_after(m, m.cost_s, m.cost_ns) end
function gcra.fits(m, units) return gcra_fits(m, full_after(m, time_of(m, units))) end
function gcra.charge(m, units) m.s, m.ns = full_after(m, time_of(m, units)) end

function gcra.refund(m, units)
    local s, ns = time_of(m, units)
    m.s, m.ns = m.s - s, m.ns - ns
    if m.ns < 0 then m.s, m.ns = m.s - 1, m.ns + G end
end

function gcra.text(m) return format('%d%09d', m.s, m.ns) end
function gcra.full_ms(m) return (m.s - m.now.s) * 1000 + math.ceil((m.ns - m.now.ns) / 1000000) end

local window = { counts = 3 }

function window.numbers(m, at)
    m.quota, m.burst, m.length = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
end

function window.read(m, main)
    m.start, m.used = timed_count(main)
    return m.start
end

function window.enter(m)
    local at_ms = math.max(m.now.ms, m.start)
    if m.used > m.quota then
        local passed = quotient(at_ms - m.start, m.length)
        m.used, m.start = math.max(0, m.used - passed * m.quota), m.start + passed * m.length
    elseif at_ms - m.start >= m.length then
        m.used = 0
    end
    if m.used == 0 then m.start = at_ms end
    m.at = at_ms
end

function window.fits(m, units)
    local more = m.used + units
    return m.used <= m.quota and more <= m.quota
        and (more <= m.burst or product_fits(more - m.burst, m.length, m.at - m.start, m.quota - m.burst))
end

function window.charge(m, units) m.used = m.used + units end
function window.cost_fits(m) return window.fits(m, m.cost) end
function window.charge_cost(m) window.charge(m, m.cost) end

function window.refund(m, units)
    m.used = math.max(0, m.used - units)
    if m.used == 0 then m.start = m.at end
end

function window.text(m) return format('%d:%d', m.start, m.used) end
function window.full_ms(m)
    if m.used == 0 then return m.start - m.now.ms end
    return m.start + m.length - m.now.ms
end

local leaky_bucket = { counts = 3 }

function leaky_bucket.numbers(m, at)
    m.size, m.drip, m.rate = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
    m.burst = m.size
end

function leaky_bucket.read(m, main)
    m.last, m.counter = timed_count(main)
    return m.last
end

-- The last drip and the units at a time.
local function level(m, ms)
    local at_ms = math.max(ms, m.last)
    local drips = quotient(at_ms - m.last, m.rate)
    local counter = math.max(0, m.counter - drips * m.drip)
    if counter == 0 then return at_ms, 0 end
    return m.last + drips * m.rate, counter
end

function leaky_bucket.enter(m) m.last, m.counter = level(m, m.now.ms) end

function leaky_bucket.guard(m, units, at_ms)
    local last, counter = level(m, at_ms or m.now.ms)
    if counter < units then m.last, m.counter = last, units end
end

function leaky_bucket.fits(m, units) return m.counter + units <= m.size end
function leaky_bucket.charge(m, units) m.counter = m.counter + units end
function leaky_bucket.cost_fits(m) return leaky_bucket.fits(m, m.cost) end
function leaky_bucket.charge_cost(m) leaky_bucket.charge(m, m.cost) end

function leaky_bucket.refund(m, units)
    leaky_bucket.enter(m)
    m.counter = math.max(0, m.counter - units)
    if m.counter == 0 then m.last = math.max(m.last, m.now.ms) end
end

function leaky_bucket.text(m) return format('%d:%d', m.last, m.counter) end
function leaky_bucket.full_ms(m) return math.ceil(m.counter / m.drip) * m.rate + m.last - m.now.ms end

-- Reads the groups of leases after the end of the block: a list of ends and units. nil for no bucket.
local function read_groups(text)
    local groups, from = {}, 1
    while from do
        local bar = find(text, '|', from, true)
        if not bar or #groups == 2 then return nil end
        local next_bar = find(text, '|', bar + 1, true)
        local till, units = sub(text, from, bar - 1), sub(text, bar + 1, (next_bar or 0) - 1)
        if not is_number(till, LARGEST) or not is_number(units, LARGEST) then return nil end
        till, units = tonumber(till), tonumber(units)
        local after = groups[1] and groups[1].till or ORIGIN_MS - 1
        if till <= after or till > LAST_MS or units < 1 or units > MAX_GROUP then return nil end
        groups[#groups + 1] = { till = till, units = units }
        from = next_bar and next_bar + 1
    end
    return groups
end

local function units_of(groups)
    local units = 0
    for _, group in ipairs(groups) do units = units + group.units end
    return units
end

-- Takes leases that are over for spent at their last moment, and guards the units of the others.
local function guard(m)
    local unix_ms = m.now.s * 1000 + floor(m.now.ns / 1000000)
    while m.groups[1] and m.groups[1].till <= unix_ms do
        m.guard(m, math.min(units_of(m.groups), m.burst), m.groups[1].till)
        table.remove(m.groups, 1)
    end
    if m.groups[1] then m.guard(m, math.min(units_of(m.groups), m.burst)) end
end

-- Gives the unspent units of a lease back. Returns whether the bucket has changed.
local function end_lease(m, tag, granted, unspent)
    unspent = math.min(unspent, granted, m.burst)
    if m.rule == window then
        if unspent == 0 or m.used == 0 or m.start ~= tag then return false end
        m.refund(m, unspent)
        return true
    end
    for i, group in ipairs(m.groups) do
        if group.till == tag then
            if group.units < granted then return false end
            group.units = group.units - granted
            if group.units == 0 then table.remove(m.groups, i) end
            m.refund(m, unspent)
            if m.groups[1] then m.guard(m, math.min(units_of(m.groups), m.burst)) end
            return true
        end
    end
    return false
end

-- Takes units ahead: as many of `want`, halved again and again, as are half of what is there. Returns their number.
local function lease(m, want, length)
    local units = math.min(want, MAX_LEASE, floor(m.burst / 2))
    while units > 0 and not m.fits(m, 2 * units) do units = floor(units / 2) end
    local unix_ms = m.now.s * 1000 + floor(m.now.ns / 1000000)
    local till = (floor(unix_ms / length) + 2) * length
    if units == 0 or till > LAST_MS then return 0 end
    if m.rule ~= window then
        local place
        for _, group in ipairs(m.groups) do
            if group.till == till or (not place and #m.groups == 2 and group.till > till) then place = group end
        end
        if not place and #m.groups == 2 then return 0 end
        if place then
            if place.units + units > MAX_GROUP then return 0 end
            place.units = place.units + units
        else
            local is_first = m.groups[1] and till < m.groups[1].till
            table.insert(m.groups, is_first and 1 or #m.groups + 1, { till = till, units = units })
        end
    end
    m.charge(m, units)
    return units
end

local function text_of(m)
    local text = m.text(m)
    if m.till == '' and not m.groups[1] then return text end
    text = text .. '|' .. (m.till == '' and '0' or m.till)
    for _, group in ipairs(m.groups) do text = text .. '|' .. format('%d|%d', group.till, group.units) end
    return text
end

local rules = { g = gcra, w = window, l = leaky_bucket, G = gcra, W = window, L = leaky_bucket }

-- Reads the text of a member's bucket; nil for no bucket.
local function read(m, text)
    m.till, m.groups, m.blocked = '', {}, false
    local main = text or ''
    local bar = find(main, '|', 1, true)
    if not bar then return text ~= '' and m.read(m, main) end
    m.till, main = sub(main, bar + 1), sub(main, 1, bar - 1)
    local more = find(m.till, '|', 1, true)
    if more then
        m.groups, m.till = read_groups(sub(m.till, more + 1)), sub(m.till, 1, more - 1)
        if not m.groups or m.rule == window or main == '' then return nil end
    end
    if not is_number(m.till, LARGEST) or (m.till == '0' and main == '') then return nil end
    m.blocked = tonumber(m.till) > m.now.s * 1000 + floor(m.now.ns / 1000000)
    if m.till == '0' then m.till = '' end
    return m.read(m, main)
end

local texts = {}
for i = 1, #KEYS do texts[i] = redis.call('GET', KEYS[i]) end
local time = redis.call('TIME')
local now = { s = tonumber(time[1]), ns = tonumber(time[2]) * 1000 }
now.ms = math.min(now.s * 1000 + floor(now.ns / 1000000), LAST_MS)

local slack, denied, at, writes, leased, any_lease = tonumber(ARGV[1]), 0, 2, {}, {}, false
for i = 1, #KEYS do
    local rule, mode = rules[ARGV[at]], ARGV[at + 1]
    local m = setmetatable({ rule = rule, now = now, cost = tonumber(ARGV[at + 2]) }, { __index = rule })
    local keep, asks = tonumber(ARGV[at + 3]), ARGV[at] < 'a'
    m.numbers(m, at + 4)
    at = at + 4 + rule.counts
    if not read(m, texts[i]) then denied = -1 break end
    if m.groups[1] then guard(m) end
    m.enter(m)
    local changed, want, length = false, 0, 0
    if asks then
        want, length, any_lease = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), true
        if ARGV[at + 3] ~= '0' then
            changed = end_lease(m, tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4]))
        end
        at = at + 5
    end
    leased[i] = 0
    if m.cost_fits(m) and not m.blocked then
        if mode == '0' or mode == '2' then
            if m.cost > 0 then
                m.charge_cost(m)
                changed = true
            end
            if want > 0 then
                leased[i] = lease(m, want, length)
                changed = changed or leased[i] > 0
            end
        end
    elseif (mode == '0' or mode == '1') and denied == 0 then
        denied = i
    end
    if changed then
        local last = m.groups[#m.groups]
        local leased_ms = last and math.max(0, last.till - now.s * 1000 - floor(now.ns / 1000000)) or 0
        writes[#writes + 1] = { KEYS[i], text_of(m), math.max(m.full_ms(m) + leased_ms, keep, 0) + slack }
    end
end
if denied == 0 then
    for _, write in ipairs(writes) do
        redis.call('SET', write[1], write[2], 'PX', format('%.0f', write[3]))
    end
end
local answer = { time[1], time[2], denied }
for i = 1, #KEYS do answer[i + 3] = texts[i] end
if any_lease then
    for i = 1, #KEYS do answer[#KEYS + 3 + i] = denied == 0 and leased[i] or 0 end
end
return answer
