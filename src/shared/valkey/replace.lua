-- Replaces the texts of buckets if each is still the one before.
--
-- KEYS: the buckets. ARGV: for each the text before ('' for none), the new text ('' to remove it), and the ms to keep it.
-- Answer: 'replaced'; or, with nothing written, the time in s and us and all texts.

local texts, same = {}, true
for i = 1, #KEYS do
    texts[i] = redis.call('GET', KEYS[i])
    same = same and (texts[i] or '') == ARGV[3 * i - 2]
end
if not same then
    local time = redis.call('TIME')
    local answer = { time[1], time[2] }
    for i = 1, #KEYS do answer[i + 2] = texts[i] end
    return answer
end
for i = 1, #KEYS do
    local new = ARGV[3 * i - 1]
    if new == '' then
        redis.call('DEL', KEYS[i])
    else
        redis.call('SET', KEYS[i], new, 'PX', ARGV[3 * i])
    end
end
return 'replaced'
