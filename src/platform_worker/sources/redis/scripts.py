"""What a worker's scripts are made of, in Lua: the clock, a job's life, and what each event does to it.

The cells are those of ``jobs.model``, written again because a server cannot ask Python within one round trip; random
histories hold the two against each other. A script is atomic. All keys begin with ``KEYS[1]``, which ends with a
hash tag, so that a cluster keeps them on one node.

Keys, after the prefix: ``job:<member>`` a hash, ``big:<member>`` its large values, ``jobs`` every id by its sequence
number, ``waiting:<queue>`` members by priority and ``run_at``, ``leases`` members by the end of the lease,
``finished:<status>`` members by the time they finished, ``unique`` the ids of unfinished jobs by their key, ``counts``
of the statuses that no index counts, ``queues`` that ever had a job, ``paused``, ``seq``, and ``bell:<queue>``. A
member is the sequence number in 14 digits: so equal scores are in order.
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

#: Counting; how many are queued or processing is not counted, the indexes know. And the score of a waiting job.
COUNT = """
local LEVEL = 8796093022208 -- 2^43: longer than any time in milliseconds; a score is priority * LEVEL + run_at

local function count(status, queue, n)
  if status == 'queued' or status == 'processing' then return end
  local field = status .. ' ' .. queue
  if call('HINCRBY', base .. 'counts', field, n) == 0 then call('HDEL', base .. 'counts', field) end
end

"""

#: Ringing, and large values: short ones stay in the job's hash, which so keeps its compact form.
COMMON = """
local WAITS = {queued = true, retry_wait = true}
local ENDED = {completed = true, failed = true, cancelled = true}

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
  local v = call('HMGET', base .. 'job:' .. member, 'status', 'spec', 'token', 'attempt', 'interruptions', 'losses',
    'cancel_requested', 'run_at', 'id', 'unique', 'watched', 'deadline', 'settled', 'error')
  if not v[1] then return nil end
  local queue, priority, max_attempts, _, backoff_ms = string.match(v[2], SPEC)
  return {
    member = member, status = v[1], queue = queue, priority = tonumber(priority), max_attempts = tonumber(max_attempts),
    backoff_ms = tonumber(backoff_ms), token = tonumber(v[3] or 0), attempt = tonumber(v[4] or 0),
    interruptions = tonumber(v[5] or 0), losses = tonumber(v[6] or 0), cancel_requested = v[7] == '1',
    run_at = tonumber(v[8]), id = v[9], unique = v[10], watched = v[11], deadline = tonumber(v[12] or 0),
    settled = tonumber(v[13] or 0), error = v[14],
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
  count(job.status, queue, -1)
  count(status, queue, 1)
  call('HSET', base .. 'job:' .. member, 'status', status, unpack(fields))
end
"""

#: What of a job never changes, and is not looked for: queue, priority, max_attempts, timeout_ms, backoff_ms,
#: enqueued_at. One value of few bytes costs a server less than six.
SPEC = """
local SPEC = '^(%S+) (%d+) (%d+) (%d+) (%d+) (%d+)$'
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

-- A job that was claimed was due: where the clock was set back since, it is not to wait for that time again.
local function requeue(job, fields)
  if job.run_at > now then
    job.run_at = now
    fields[#fields + 1] = 'run_at'
    fields[#fields + 1] = now
  end
  move(job, 'queued', fields)
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
    local waiting = base .. 'waiting:' .. ARGV[i]
    local found = call('ZRANGE', waiting, 0, 0, 'WITHSCORES')
    -- A queue that is paused says so in the first place.
    while found[1] and found[1] ~= 'paused' do
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
  local data = v[4]
  if data == '' then data = call('HGET', base .. 'big:' .. member, 'data') or 'null' end
  return {member, v[1], v[2], v[3], attempt, token, data}
end

-- What this very worker was given in a reply that never arrived: it holds nothing else now.
local function adopt(owner, lease_ms)
  for _, member in ipairs(call('ZRANGE', base .. 'leases', 0, -1)) do
    local key = base .. 'job:' .. member
    if call('HGET', key, 'owner') == owner then
      local v = call('HMGET', key, 'id', 'task', 'spec', 'data', 'token', 'attempt', 'timeout_ms')
      call('ZADD', base .. 'leases', now + lease_ms, member)
      if v[7] then call('HSET', key, 'deadline', now + v[7]) end
      return handed(member, v, tonumber(v[5]), tonumber(v[6]))
    end
  end
end

-- A job, or the milliseconds until the first one is due, -1 where none waits.
local function claim(again, owner, lease_ms, first)
  local adopted = again == '1' and adopt(owner, lease_ms)
  if adopted then return adopted end
  local member, queue = next_due(first)
  if not member then
    -- Nothing to be had, so no ring means anything any more.
    for i = first, #ARGV do call('DEL', base .. 'bell:' .. ARGV[i]) end
    return soonest and soonest - now or -1
  end
  local key = base .. 'job:' .. member
  local v = call('HMGET', key, 'id', 'task', 'spec', 'data', 'token', 'attempt', 'timeout_ms', 'status')
  if not v[1] then
    -- Its record was deleted by hand, or by a server that is short of memory. Look again at once.
    call('ZREM', base .. 'waiting:' .. queue, member)
    return 0
  end
  local token, attempt = (v[5] or 0) + 1, (v[6] or 0) + 1
  call('ZREM', base .. 'waiting:' .. queue, member)
  call('ZADD', base .. 'leases', now + lease_ms, member)
  call('HSET', key, 'status', 'processing', 'token', token, 'attempt', attempt, 'started_at', now, 'owner', owner)
  if v[7] then call('HSET', key, 'deadline', now + v[7]) end
  count(v[8], queue, -1)
  return handed(member, v, token, attempt)
end
"""

#: ARGV: again, owner, lease_ms, queues…
CLAIM = Script("claim", COUNT, NEXT, "return claim(ARGV[1], ARGV[2], ARGV[3], 4)")

#: Settles what went well, which is what most jobs do. ARGV: member, token, result, queue, id, whether to claim the
#: next, and as for ``CLAIM``. The reply: 0 or 1 for stale, and what ``CLAIM`` replies.
COMPLETE = Script(
    "complete",
    COUNT,
    NEXT,
    """
local member, queue = ARGV[1], ARGV[4]
local key = base .. 'job:' .. member
local v = call('HMGET', key, 'token', 'status', 'error', 'unique', 'watched')
local stale = 0
if v[1] ~= ARGV[2] or v[2] ~= 'processing' then
  -- Ours all the same, where the reply to this very settlement was lost.
  if v[1] ~= ARGV[2] or v[2] ~= 'completed' or ARGV[7] == '0' then stale = 1 end
else
  local result = ARGV[3]
  if #result > 64 then
    call('HSET', base .. 'big:' .. member, 'result', result)
    result = ''
  end
  call('ZREM', base .. 'leases', member)
  call('ZADD', base .. 'finished:completed', now, member)
  call('HSET', key, 'status', 'completed', 'finished_at', now, 'result', result)
  if v[3] then call('HDEL', key, 'error') end
  if v[4] then call('HDEL', base .. 'unique', v[4]) end
  if v[5] then call('PUBLISH', base .. 'ended:' .. ARGV[5], 'completed') end
  count('completed', queue, 1)
end
return {stale, ARGV[6] == '1' and claim(ARGV[7], ARGV[8], ARGV[9], 10) or -2}
""",
)

#: Settles what did not. ARGV: member, token, event, error, error if cancelled, final, after_ms, luck, longest, jitter,
#: whether to claim the next, and as for ``CLAIM``. The reply as of ``COMPLETE``.
SETTLE = Script(
    "settle",
    SPEC,
    COUNT,
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
  local fields = {'settled', ARGV[2]}
  if ARGV[3] == 'fail' then
    fail(job, fields, ARGV[4], ARGV[5], ARGV[6] == '1', tonumber(ARGV[7]), ARGV[8], tonumber(ARGV[9]), ARGV[10])
  elseif job.cancel_requested then
    cancel(job, fields, ARGV[5])
  else
    fields[3], fields[4] = 'attempt', job.attempt - 1
    fields[5], fields[6] = 'interruptions', job.interruptions + 1
    requeue(job, fields)
  end
end
return {stale, ARGV[11] == '1' and claim(ARGV[12], ARGV[13], ARGV[14], 15) or -2}
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
