-- Decides a batch of buckets at the server's time, and charges all of its members or none.
--
-- ARGV, for each member: its rule, its mode (0: can deny and is charged, 1: can deny, 2: is charged, 3: neither), its cost, the
-- least ms for which its text is kept, and the numbers of its rule; and if a member asks for a lease, of each the units to lease
-- (0 for none), a lease's length in ms, and the tag, the granted and the unspent units of the lease that ends (0 0 0 for none).
-- Answer: the time in s and us, the first member that denies (0: none, the batch is charged; -1: a text is no bucket, nothing
-- is written), and the members' texts before; then, if a member asks for a lease, the units of each member's lease.

local end_lease, lease
if ARGV[1] == '1' then
    local ORIGIN_MS, MAX_LEASE, MAX_GROUP = 1577836800000, 1048575, 4194303

    -- Gives the unspent units of a lease back. Returns whether the bucket has changed.
    function end_lease(m, tag, granted, unspent)
        if m.rule ~= 'g' then return false end
        unspent = min(unspent, granted, burst_of(m))
        for i, group in ipairs(m.groups or {}) do
            if group.till == tag then
                if group.units < granted then return false end
                group.units = group.units - granted
                if group.units == 0 then table.remove(m.groups, i) end
                local s, ns = time_of(m, unspent)
                m.a, m.b = m.a - s, m.b - ns
                if m.b < 0 then m.a, m.b = m.a - 1, m.b + G end
                if m.groups[1] then guard_at(m, now_s, now_ns) end
                return true
            end
        end
        return false
    end

    -- Takes units ahead: as many of `want`, halved again and again, as are half of what is there. Returns their number.
    function lease(m, want, length)
        if m.rule ~= 'g' then return 0 end
        local units = min(want, MAX_LEASE, floor(burst_of(m) / 2))
        local function after(more) return charged(m, more, time_of(m, more)) end
        while units > 0 and not after(2 * units) do units = floor(units / 2) end
        local till = (floor(unix_ms / length) + 2) * length
        if units == 0 or till < ORIGIN_MS or till > LAST_MS then return 0 end
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
        m.a, m.b = after(units)
        return units
    end
end

local asks, at, denied, leased, writes = ARGV[1] == '1', 2, 0, {}, {}
for i = 1, #KEYS do
    local mode, cost, keep_ms = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
    local numbers = at + 4
    local m, next_at = member(ARGV[at], numbers)
    at = next_at
    if not read(m, answer[i + 3]) then denied = -1 break end
    local changed, want = false, 0
    if asks then
        leased[i], want = 0, ARGV[at] + 0
        if ARGV[at + 3] ~= '0' then
            changed = end_lease(m, ARGV[at + 2] + 0, ARGV[at + 3] + 0, ARGV[at + 4] + 0)
        end
    end
    local a, b = charged(m, cost, ARGV[numbers], ARGV[numbers + 1])
    if a and not m.blocked then
        if mode == '0' or mode == '2' then
            if cost ~= '0' then m.a, m.b, changed = a, b, true end
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
        local n = #writes
        writes[n + 1], writes[n + 2], writes[n + 3] = KEYS[i], m, keep_ms
    end
end
if denied == 0 then
    for n = 1, #writes, 3 do store(writes[n], writes[n + 1], main_of(writes[n + 1], writes[n + 2]), writes[n + 2]) end
end
answer[3] = denied
if asks then
    for i = 1, #KEYS do answer[#KEYS + 3 + i] = denied == 0 and leased[i] or 0 end
end
return answer
