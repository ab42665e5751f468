"""The scripts by which any live worker looks after the queue: ended leases, claims of the gone, retention."""

from __future__ import annotations

from platform_worker.sources.redis.scripts import CELLS, COMMON, COUNT, LIFE, SPEC, Script

#: Ends one claim whose worker is gone, by its deadline where that was the reason.
LOSE = """
local function json(reason, message, type)
  return '{"message":"' .. message .. '","reason":"' .. reason .. '","type":' .. type .. '}'
end

-- One chance for a batch, another for each job of it.
local function lose(job, luck, longest, jitter, grace)
  local fields, nothing = {}, 'null'
  if job.deadline > 0 and now >= job.deadline + grace then
    local message, type = 'its time was up and its worker was ended', '"JobTimeout"'
    return fail(job, fields, json('timeout', message, type), json('cancelled', message, type), false, nil, luck,
      longest, jitter)
  end
  local message = 'its worker was lost'
  if job.cancel_requested then return cancel(job, fields, json('cancelled', message, nothing)) end
  fields[1], fields[2] = 'losses', job.losses + 1
  put(job.member, fields, 'error', json('worker-lost', message, nothing))
  if job.attempt >= job.max_attempts then return move(job, 'failed', fields) end
  if job.losses == 0 then return requeue(job, fields) end
  job.run_at = now + wait(job, luck, longest, jitter)
  fields[#fields + 1] = 'run_at'
  fields[#fields + 1] = job.run_at
  move(job, 'retry_wait', fields)
end

local function luck_of(luck, i)
  return (luck + i * 0.618033988749895) % 1
end
"""

#: Ends a batch of claims whose lease has ended. ARGV: batch, luck, longest, jitter, grace.
EXPIRED = Script(
    "expired",
    SPEC,
    COUNT,
    COMMON,
    LIFE,
    CELLS,
    LOSE,
    """
local members = call('ZRANGEBYSCORE', base .. 'leases', '-inf', now, 'LIMIT', 0, ARGV[1])
for i, member in ipairs(members) do
  local job = life(member)
  if job then
    lose(job, luck_of(ARGV[2], i - 1), tonumber(ARGV[3]), ARGV[4], ARGV[5])
  else
    -- Its record was deleted by hand, or by a server that is short of memory.
    call('ZREM', base .. 'leases', member)
  end
end
return #members
""",
)

#: Ends the claims of a pool's older generations and of a slot's older incarnations, among a batch of all claims.
#: ARGV: batch, luck, longest, jitter, grace, how many to pass over, generation, slot, incarnation, pool.
#: The reply: how many have ended, and how many to pass over next, -1 where that was the last batch.
GONE = Script(
    "gone",
    SPEC,
    COUNT,
    COMMON,
    LIFE,
    CELLS,
    LOSE,
    """
local size, skip = tonumber(ARGV[1]), tonumber(ARGV[6])
local generation, slot, incarnation = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local members = call('ZRANGE', base .. 'leases', skip, skip + size - 1)
local ended = 0
for _, member in ipairs(members) do
  local owner = call('HGET', base .. 'job:' .. member, 'owner') or ''
  local g, s, i, pool = string.match(owner, '^(%d+) (%d+) (%d+) (.*)$')
  g, s, i = tonumber(g), tonumber(s), tonumber(i)
  if pool == ARGV[10] and (g < generation or (g == generation and s == slot and i < incarnation)) then
    lose(life(member), luck_of(ARGV[2], ended), tonumber(ARGV[3]), ARGV[4], ARGV[5])
    ended = ended + 1
  end
end
return {ended, #members < size and -1 or skip + #members - ended}
""",
)

#: Removes a batch of finished jobs. ARGV: batch, whether the next is an age or a time, the age they have passed or the
#: time before which they finished, and their statuses.
REMOVE = Script(
    "remove",
    SPEC,
    COUNT,
    """
local left, before, removed = tonumber(ARGV[1]), tonumber(ARGV[3]), 0
if ARGV[2] == 'age' then before = now - before end
for i = 4, #ARGV do
  local finished = base .. 'finished:' .. ARGV[i]
  local members = call('ZRANGEBYSCORE', finished, '-inf', '(' .. string.format('%.0f', before), 'LIMIT', 0, left)
  for _, member in ipairs(members) do
    local v = call('HMGET', base .. 'job:' .. member, 'id', 'spec')
    call('ZREM', finished, member)
    if v[1] then
      call('ZREM', base .. 'jobs', v[1])
      count(ARGV[i], string.match(v[2], SPEC), -1)
    end
    call('UNLINK', base .. 'job:' .. member, base .. 'big:' .. member)
  end
  removed, left = removed + #members, left - #members
end
return removed
""",
)
