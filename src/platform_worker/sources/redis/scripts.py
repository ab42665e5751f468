"""What a worker's scripts are made of, in Lua: the clock, a job's life, and what each event does to it.

The cells are those of ``jobs.model``, written again because a server cannot ask Python within one round trip; random
histories hold the two against each other. A script is atomic. All keys begin with ``KEYS[1]``, which ends with a
hash tag, so that a cluster keeps them on one node.

Keys, after the prefix: ``job:<member>`` a hash, ``big:<member>`` its large values, ``jobs`` every id by its sequence
number, ``waiting:<queue>`` members by priority and ``run_at``, ``leases`` members by the end of the lease,
``finished:<status>`` members by the time they finished, ``unique`` the ids of unfinished jobs by their key, ``counts``,
``paused``, ``seq``, and ``bell:<queue>``. A member is the sequence number in 14 digits: so equal scores are in order.
"""

from __future__ import annotations


class Script:
    """A script by the fragments it needs; ``name`` tells it apart."""

    def __init__(self, name: str, *fragments: str) -> None:
        self.name = name
        self._fragments = fragments

    def text(self) -> str:
        """The whole script."""
        return "\n".join((_BASE, CLOCK, *self._fragments))


_BASE = """
local base, call = KEYS[1], redis.call
"""

#: The store's clock, in milliseconds.
CLOCK = """
local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
"""

#: Counting, ringing, and large values: short ones stay in the job's hash, which so keeps its compact form.
COMMON = """
local LEVEL = 8796093022208 -- 2^43: longer than any time in milliseconds; a waiting job's score is priority and time
local WAITS = {queued = true, retry_wait = true}
local ENDED = {completed = true, failed = true, cancelled = true}
local counts = {}

local function count(queue, status, n)
  local field = status .. ' ' .. queue
  counts[field] = (counts[field] or 0) + n
end

local function flush()
  for field, n in pairs(counts) do
    if n ~= 0 then call('HINCRBY', base .. 'counts', field, n) end
  end
end

local function ring(queue, n)
  local bell = base .. 'bell:' .. queue
  for _ = 1, math.min(n, 64) do
    if call('RPUSH', bell, '!') > 64 then
      call('LTRIM', bell, 0, 63)
      return
    end
  end
end

local function put(member, fields, name, text)
  fields[#fields + 1] = name
  if #text <= 64 then
    fields[#fields + 1] = text
  else
    fields[#fields + 1] = ''
    call('HSET', base .. 'big:' .. member, name, text)
  end
end
"""

#: A job's life, and moving it to another status with everything that depends on it.
LIFE = """
local function life(member)
  local v = call('HMGET', base .. 'job:' .. member, 'status', 'token', 'attempt', 'max_attempts', 'interruptions',
    'losses', 'cancel_requested', 'run_at', 'backoff_ms', 'queue', 'priority', 'id', 'unique', 'watched', 'deadline',
    'owner', 'settled', 'error')
  if not v[1] then return nil end
  return {
    member = member, status = v[1], token = tonumber(v[2] or 0), attempt = tonumber(v[3] or 0),
    max_attempts = tonumber(v[4]), interruptions = tonumber(v[5] or 0), losses = tonumber(v[6] or 0),
    cancel_requested = v[7] == '1', run_at = tonumber(v[8]), backoff_ms = tonumber(v[9]), queue = v[10],
    priority = tonumber(v[11]), id = v[12], unique = v[13], watched = v[14], deadline = tonumber(v[15] or 0),
    owner = v[16], settled = tonumber(v[17] or 0), error = v[18],
  }
end

local function move(job, status, fields)
  local member, queue = job.member, job.queue
  if job.status == 'processing' then
    call('ZREM', base .. 'leases', member)
  elseif WAITS[job.status] then
    call('ZREM', base .. 'waiting:' .. queue, member)
  else
    call('ZREM', base .. 'finished:' .. job.status, member)
  end
  if ENDED[status] then
    fields[#fields + 1] = 'finished_at'
    fields[#fields + 1] = now
    call('ZADD', base .. 'finished:' .. status, now, member)
    if job.unique then call('HDEL', base .. 'unique', job.unique) end
    if job.watched then call('PUBLISH', base .. 'ended:' .. job.id, status) end
  else
    call('ZADD', base .. 'waiting:' .. queue, job.priority * LEVEL + job.run_at, member)
    if status == 'queued' then ring(queue, 1) end
  end
  count(queue, job.status, -1)
  count(queue, status, 1)
  call('HSET', base .. 'job:' .. member, 'status', status, unpack(fields))
end
"""

#: What fails, releases, or loses a claim does: ``fields`` may hold something to write already.
CELLS = """
local function wait(job, luck, longest, jitter)
  local ms = math.min(job.backoff_ms * 2 ^ math.min(math.max(job.attempt - 1, 0), 60), longest)
  return ms + math.floor(ms * jitter * luck)
end

local function cancel(job, fields, why)
  put(job.member, fields, 'error', why)
  move(job, 'cancelled', fields)
end

local function fail(job, fields, why, why_cancelled, final, after, luck, longest, jitter)
  if job.cancel_requested then return cancel(job, fields, why_cancelled) end
  put(job.member, fields, 'error', why)
  if final or job.attempt >= job.max_attempts then return move(job, 'failed', fields) end
  job.run_at = now + (after or wait(job, luck, longest, jitter))
  fields[#fields + 1] = 'run_at'
  fields[#fields + 1] = job.run_at
  move(job, 'retry_wait', fields)
end
"""

#: The next due job: queues in order, then priority, time, sequence; ``soonest`` is that of the first not due yet.
NEXT = """
local soonest = nil

local function next_due(first)
  for i = first, #ARGV do
    local waiting, from = base .. 'waiting:' .. ARGV[i], '-inf'
    local found = call('ZRANGEBYSCORE', waiting, from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    if found[1] and call('SISMEMBER', base .. 'paused', ARGV[i]) == 1 then found = {} end
    while found[1] do
      local priority = math.floor(found[2] / LEVEL)
      local run_at = found[2] - priority * LEVEL
      if run_at <= now then return found[1], ARGV[i] end
      if not soonest or run_at < soonest then soonest = run_at end
      -- The first of this priority is not due, so none of it is: on to the next that has any.
      found = call('ZRANGEBYSCORE', waiting, (priority + 1) * LEVEL, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    end
  end
end

local function handed(member, v, token, attempt)
  local data = v[6]
  if data == '' then data = call('HGET', base .. 'big:' .. member, 'data') end
  return {member, v[1], v[2], v[3], attempt, v[4], token, v[5], data}
end

-- A job, or the milliseconds until the first one is due, -1 where none waits.
local function claim(owner, lease_ms, first)
  local member, queue = next_due(first)
  if not member then
    -- Nothing to be had, so no ring means anything any more.
    for i = first, #ARGV do call('DEL', base .. 'bell:' .. ARGV[i]) end
    return soonest and soonest - now or -1
  end
  local key = base .. 'job:' .. member
  local v = call('HMGET', key, 'id', 'task', 'queue', 'max_attempts', 'timeout_ms', 'data', 'token', 'attempt',
    'status')
  local token, attempt, timeout_ms = (v[7] or 0) + 1, (v[8] or 0) + 1, tonumber(v[5])
  call('ZREM', base .. 'waiting:' .. queue, member)
  call('ZADD', base .. 'leases', now + lease_ms, member)
  if timeout_ms > 0 then call('HSET', key, 'deadline', now + timeout_ms) end
  call('HSET', key, 'status', 'processing', 'token', token, 'attempt', attempt, 'started_at', now, 'owner', owner)
  count(queue, v[9], -1)
  count(queue, 'processing', 1)
  return handed(member, v, token, attempt)
end

-- What this very worker was given in a reply that never arrived: it holds nothing else now.
local function adopt(owner, lease_ms)
  for _, member in ipairs(call('ZRANGE', base .. 'leases', 0, -1)) do
    local key = base .. 'job:' .. member
    if call('HGET', key, 'owner') == owner then
      local v = call('HMGET', key, 'id', 'task', 'queue', 'max_attempts', 'timeout_ms', 'data', 'token', 'attempt')
      call('ZADD', base .. 'leases', now + lease_ms, member)
      if tonumber(v[5]) > 0 then call('HSET', key, 'deadline', now + v[5]) end
      return handed(member, v, tonumber(v[7]), tonumber(v[8]))
    end
  end
end

local function claim_or_adopt(again, owner, lease_ms, first)
  return again == '1' and adopt(owner, lease_ms) or claim(owner, lease_ms, first)
end
"""

#: ARGV: again, owner, lease_ms, queues…
CLAIM = Script(
    "claim",
    COMMON,
    NEXT,
    """
local reply = claim_or_adopt(ARGV[1], ARGV[2], ARGV[3], 4)
flush()
return reply
""",
)

#: ARGV: member, token, event, its text, text if cancelled, final, after_ms, luck, longest, jitter, then whether to
#: claim the next, and as for ``CLAIM``. The reply: 0 or 1 for stale, and what ``CLAIM`` replies.
SETTLE = Script(
    "settle",
    COMMON,
    LIFE,
    CELLS,
    NEXT,
    """
local job, token = life(ARGV[1]), tonumber(ARGV[2])
local stale = 0
if not job or job.status ~= 'processing' or job.token ~= token then
  -- Ours all the same, where the reply to this very settlement was lost.
  if not job or ARGV[12] == '0' or job.settled ~= token then stale = 1 end
else
  local event, fields = ARGV[3], {'settled', ARGV[2]}
  if event == 'complete' then
    put(job.member, fields, 'result', ARGV[4])
    if job.error then call('HDEL', base .. 'job:' .. job.member, 'error') end
    move(job, 'completed', fields)
  elseif event == 'fail' then
    fail(job, fields, ARGV[4], ARGV[5], ARGV[6] == '1', tonumber(ARGV[7]), ARGV[8], tonumber(ARGV[9]), ARGV[10])
  elseif job.cancel_requested then
    cancel(job, fields, ARGV[5])
  else
    fields[3], fields[4] = 'attempt', job.attempt - 1
    fields[5], fields[6] = 'interruptions', job.interruptions + 1
    move(job, 'queued', fields)
  end
end
local following = -2
if ARGV[11] == '1' then following = claim_or_adopt(ARGV[12], ARGV[13], ARGV[14], 15) end
flush()
return {stale, following}
""",
)

#: ARGV: member, token, lease_ms or nothing to leave the lease as it is, progress or nothing. Held, asked to stop.
RENEW = Script(
    "renew",
    COMMON,
    """
local key = base .. 'job:' .. ARGV[1]
local v = call('HMGET', key, 'status', 'token', 'cancel_requested')
if v[1] ~= 'processing' or v[2] ~= ARGV[2] then return {0, 0} end
if ARGV[3] ~= '' then call('ZADD', base .. 'leases', now + ARGV[3], ARGV[1]) end
if ARGV[4] ~= '' then
  local fields = {}
  put(ARGV[1], fields, 'progress', ARGV[4])
  call('HSET', key, unpack(fields))
end
return {1, v[3] == '1' and 1 or 0}
""",
)

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
  if job.losses == 0 then return move(job, 'queued', fields) end
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
    COMMON,
    LIFE,
    CELLS,
    LOSE,
    """
local members = call('ZRANGEBYSCORE', base .. 'leases', '-inf', now, 'LIMIT', 0, ARGV[1])
for i, member in ipairs(members) do
  lose(life(member), luck_of(ARGV[2], i - 1), tonumber(ARGV[3]), ARGV[4], ARGV[5])
end
flush()
return #members
""",
)

#: Ends the claims of a pool's older generations and of a slot's older incarnations, among a batch of all claims.
#: ARGV: batch, luck, longest, jitter, grace, how many to pass over, generation, slot, incarnation, pool.
#: The reply: how many have ended, and how many to pass over next, -1 where that was the last batch.
GONE = Script(
    "gone",
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
flush()
return {ended, #members < size and -1 or skip + #members - ended}
""",
)

#: Removes a batch of finished jobs. ARGV: batch, whether the next is an age or a time, the age they have passed or the
#: time before which they finished, and their statuses.
REMOVE = Script(
    "remove",
    COMMON,
    """
local left, before, removed = tonumber(ARGV[1]), tonumber(ARGV[3]), 0
if ARGV[2] == 'age' then before = now - before end
for i = 4, #ARGV do
  local finished = base .. 'finished:' .. ARGV[i]
  local members = call('ZRANGEBYSCORE', finished, '-inf', '(' .. string.format('%.0f', before), 'LIMIT', 0, left)
  for _, member in ipairs(members) do
    local v = call('HMGET', base .. 'job:' .. member, 'id', 'queue')
    call('ZREM', finished, member)
    call('ZREM', base .. 'jobs', v[1])
    call('UNLINK', base .. 'job:' .. member, base .. 'big:' .. member)
    count(v[2], ARGV[i], -1)
  end
  removed, left = removed + #members, left - #members
end
flush()
return removed
""",
)
