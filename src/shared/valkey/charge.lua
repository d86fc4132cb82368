-- Decides a batch of buckets at the server's time, and charges all of its members or none.
--
-- KEYS: the members' buckets. ARGV: the slack in ms; then for each member its rule (g, w or l), its mode (0: can deny and is
-- charged, 1: can deny, 2: is charged), its cost, four numbers of the rule, and the least ms for which its text is kept.
-- Answer: the time in s and us, the first member that denies (0: none, the batch is charged; -1: a text is no bucket, nothing
-- is written), and the members' texts before.
--
-- src/core/shared/decide.rs has the same steps in Rust, and text.rs the form of the texts. A number of Lua is exact below
-- 2^53. Nanoseconds since 1970 are not: they are pairs of seconds and nanoseconds.

local find, sub, byte, floor, format = string.find, string.sub, string.byte, math.floor, string.format
local G, BLOCK = 1000000000, 1048576
local ORIGIN_MS, LAST_MS, MAX_COUNT = 1577836800000, 2127592613886, 16777215
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

-- Each rule returns whether the cost fits, the new text, and the ms until that bucket is full; nil for no bucket.

local function gcra(main, now, inc_s, inc_ns, bo_s, bo_ns)
    local s, ns = now.s, now.ns
    if main ~= '' then
        if not is_number(main, LARGEST_TAT) then return nil end
        local tat_s, tat_ns = 0, 0
        if #main > 9 then
            tat_s, tat_ns = tonumber(sub(main, 1, -10)), tonumber(sub(main, -9))
        end
        if tat_s > s or (tat_s == s and tat_ns > ns) then s, ns = tat_s, tat_ns end
    end
    s, ns = s + inc_s, ns + inc_ns
    if ns >= G then s, ns = s + 1, ns - G end
    local most_s, most_ns = now.s + bo_s, now.ns + bo_ns
    if most_ns >= G then most_s, most_ns = most_s + 1, most_ns - G end
    local fits = s < most_s or (s == most_s and ns <= most_ns)
    local full_ms = (s - now.s) * 1000 + math.ceil((ns - now.ns) / 1000000)
    return fits, format('%d%09d', s, ns), full_ms
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

local function window(main, now, cost, quota, burst, length)
    local at, used = timed_count(main)
    if not at then return nil end
    local start, at_ms = at, math.max(now.ms, at)
    if used > quota then
        local passed = quotient(at_ms - at, length)
        used, start = math.max(0, used - passed * quota), at + passed * length
    elseif at_ms - at >= length then
        used = 0
    end
    if used == 0 then start = at_ms end
    local elapsed, more = at_ms - start, used + cost
    local fits = used <= quota and more <= quota
        and (more <= burst or product_fits(more - burst, length, elapsed, quota - burst))
    return fits, format('%d:%d', start, more), start + length - now.ms
end

local function leaky_bucket(main, now, cost, size, drip, rate)
    local at, counter = timed_count(main)
    if not at then return nil end
    local at_ms = math.max(now.ms, at)
    local drips = quotient(at_ms - at, rate)
    counter = math.max(0, counter - drips * drip)
    local last = at_ms
    if counter > 0 then last = at + drips * rate end
    counter = counter + cost
    local full_ms = math.ceil(counter / drip) * rate + last - now.ms
    return counter <= size, format('%d:%d', last, counter), full_ms
end

local texts = {}
for i = 1, #KEYS do texts[i] = redis.call('GET', KEYS[i]) end
local time = redis.call('TIME')
local now = { s = tonumber(time[1]), ns = tonumber(time[2]) * 1000 }
now.ms = math.min(now.s * 1000 + floor(now.ns / 1000000), LAST_MS)

local slack, denied, writes = tonumber(ARGV[1]), 0, {}
for i = 1, #KEYS do
    local at = 8 * i - 6
    local rule, mode, cost, keep = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2]), tonumber(ARGV[at + 7])
    local n1, n2 = tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
    local n3, n4 = tonumber(ARGV[at + 5]), tonumber(ARGV[at + 6])
    local main, till, blocked = texts[i] or '', '', false
    local bar = find(main, '|', 1, true)
    if bar then
        till, main = sub(main, bar + 1), sub(main, 1, bar - 1)
        if not is_number(till, LARGEST) or (till == '0' and main == '') then denied = -1 break end
        blocked = tonumber(till) > now.s * 1000 + floor(now.ns / 1000000)
    elseif texts[i] == '' then
        denied = -1
        break
    end
    local fits, text, full_ms
    if rule == 'g' then
        fits, text, full_ms = gcra(main, now, n1, n2, n3, n4)
    elseif rule == 'w' then
        fits, text, full_ms = window(main, now, cost, n1, n2, n3)
    else
        fits, text, full_ms = leaky_bucket(main, now, cost, n1, n2, n3)
    end
    if fits == nil then denied = -1 break end
    if fits and not blocked then
        if mode ~= '1' and cost > 0 then
            if bar and till ~= '0' then text = text .. '|' .. till end
            writes[#writes + 1] = { KEYS[i], text, math.max(full_ms, keep, 0) + slack }
        end
    elseif mode ~= '2' and denied == 0 then
        denied = i
    end
end
if denied == 0 then
    for _, write in ipairs(writes) do
        redis.call('SET', write[1], write[2], 'PX', format('%.0f', write[3]))
    end
end
local answer = { time[1], time[2], denied }
for i = 1, #KEYS do answer[i + 3] = texts[i] end
return answer
