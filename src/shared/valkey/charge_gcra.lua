-- Charges one gcra bucket: charge.lua for one member that can deny and is charged, and a text of 19 digits or none.
--
-- KEYS: the bucket. ARGV: the slack in ms; the cost's and the burst's time, each in s and ns; the time as charge.lua has it.
-- Answer: as charge.lua's, or 'general' if the text is another one, with nothing written: ask charge.lua.

local text = redis.call('GET', KEYS[1])
local time = redis.call('TIME')
local now_s, now_ns = tonumber(time[1]), tonumber(time[2]) * 1000
local s, ns = now_s, now_ns
if text then
    if #text ~= 19 or string.find(text, '%D') or string.byte(text) == 48 then return 'general' end
    local tat_s, tat_ns = tonumber(string.sub(text, 1, 10)), tonumber(string.sub(text, 11))
    if tat_s > s or (tat_s == s and tat_ns > ns) then s, ns = tat_s, tat_ns end
end
s, ns = s + ARGV[2], ns + ARGV[3]
if ns >= 1000000000 then s, ns = s + 1, ns - 1000000000 end
local most_s, most_ns = now_s + ARGV[4], now_ns + ARGV[5]
if most_ns >= 1000000000 then most_s, most_ns = most_s + 1, most_ns - 1000000000 end
if s > most_s or (s == most_s and ns > most_ns) then return { time[1], time[2], 1, text } end
local kept_ms = (s - now_s) * 1000 + math.ceil((ns - now_ns) / 1000000) + ARGV[1]
redis.call('SET', KEYS[1], string.format('%d%09d', s, ns), 'PX', string.format('%.0f', kept_ms))
return { time[1], time[2], 0, text }
