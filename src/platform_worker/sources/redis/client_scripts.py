"""The scripts of ``Queue``'s side: adding, steering, looking. Each is one round trip."""

from __future__ import annotations

from platform_worker.sources.redis.scripts import CELLS, COMMON, LIFE, Script

#: Adds jobs. ARGV: eleven a job, in the order of ``client_store.ROW``. The reply: the time, and an id a job.
#: A job that is there already, from a request whose reply was lost, is not added again.
ENQUEUE = Script(
    "enqueue",
    COMMON,
    """
local reply, rings = {now}, {}
local last = call('INCRBY', base .. 'seq', #ARGV / 11)
local first = last - #ARGV / 11 + 1
for i = 1, #ARGV, 11 do
  local id, queue, unique = ARGV[i], ARGV[i + 2], ARGV[i + 9]
  local held = unique ~= '' and call('HGET', base .. 'unique', unique)
  local seq = first + (i - 1) / 11
  if held then
    reply[#reply + 1] = held
  else
    reply[#reply + 1] = id
    if call('ZADD', base .. 'jobs', 'NX', seq, id) == 1 then
      local member = string.format('%014.0f', seq)
      local fields = {'status', 'queued', 'id', id, 'task', ARGV[i + 1], 'queue', queue, 'priority', ARGV[i + 3],
        'enqueued_at', ARGV[i + 4], 'run_at', ARGV[i + 5], 'max_attempts', ARGV[i + 6], 'timeout_ms', ARGV[i + 7],
        'backoff_ms', ARGV[i + 8]}
      put(member, fields, 'data', ARGV[i + 10])
      if unique ~= '' then
        fields[#fields + 1] = 'unique'
        fields[#fields + 1] = unique
        call('HSET', base .. 'unique', unique, id)
      end
      call('HSET', base .. 'job:' .. member, unpack(fields))
      call('ZADD', base .. 'waiting:' .. queue, ARGV[i + 3] * LEVEL + ARGV[i + 5], member)
      count(queue, 'queued', 1)
      rings[queue] = (rings[queue] or 0) + 1
    end
  end
end
for queue, n in pairs(rings) do ring(queue, n) end
flush()
return reply
""",
)

#: ARGV: id, ``cancel`` or ``retry``, the error of a job that is cancelled before it ran. The reply: nothing where the
#: job is not there, 1 where it was refused, else 0.
CHANGE = Script(
    "change",
    COMMON,
    LIFE,
    CELLS,
    """
local seq = call('ZSCORE', base .. 'jobs', ARGV[1])
if not seq then return nil end
local job = life(string.format('%014.0f', seq))
local key = base .. 'job:' .. job.member
local refused = 0
if ARGV[2] == 'cancel' then
  if WAITS[job.status] then
    cancel(job, {'cancel_requested', '1'}, ARGV[3])
  elseif job.status == 'processing' then
    call('HSET', key, 'cancel_requested', '1')
  else
    refused = 1
  end
elseif job.status ~= 'failed' and job.status ~= 'cancelled' then
  refused = 1
elseif job.unique and call('HSETNX', base .. 'unique', job.unique, job.id) == 0 then
  refused = 1
else
  call('HDEL', key, 'error', 'progress', 'finished_at')
  job.run_at = now
  move(job, 'queued', {'attempt', 0, 'losses', 0, 'run_at', now, 'cancel_requested', 0})
end
flush()
return refused
""",
)

#: Reads one job. ARGV: id. The reply: nothing, or its fields and values, and its large ones.
GET = Script(
    "get",
    """
local seq = call('ZSCORE', base .. 'jobs', ARGV[1])
if not seq then return nil end
local member = string.format('%014.0f', seq)
return {call('HGETALL', base .. 'job:' .. member), call('HGETALL', base .. 'big:' .. member)}
""",
)

#: Reads a stretch of jobs, newest first. ARGV: how many to look at, how many to reply with, whether whole, the sequence
#: number they must be below, and the status, queue and task they must have, where not empty.
#: The reply: the sequence number to go on below, 0 where that was all, and the ids or the jobs as of ``GET``.
WALK = Script(
    "walk",
    """
local limit, below = tonumber(ARGV[2]), '(' .. ARGV[4]
local members, more = {}, 0
local index = ARGV[5] == 'processing' and 'leases' or 'finished:' .. ARGV[5]
local held = call('ZCARD', base .. index)
if held > 0 and held <= 1000 then
  -- Few among many: all of them, by their own index.
  members = call('ZRANGE', base .. index, 0, -1)
  table.sort(members, function(a, b) return a > b end)
elseif ARGV[5] == '' or ARGV[5] == 'queued' or ARGV[5] == 'retry_wait' or held > 0 then
  local found = call('ZREVRANGEBYSCORE', base .. 'jobs', below, '-inf', 'WITHSCORES', 'LIMIT', 0, ARGV[1])
  for i = 2, #found, 2 do members[#members + 1] = string.format('%014.0f', found[i]) end
  if #members == tonumber(ARGV[1]) then more = tonumber(members[#members]) end
end
local most = ARGV[4] == '+inf' and math.huge or tonumber(ARGV[4])
local reply = {}
for _, member in ipairs(members) do
  local key = base .. 'job:' .. member
  local v = call('HMGET', key, 'status', 'queue', 'task', 'id')
  if tonumber(member) < most and (ARGV[5] == '' or v[1] == ARGV[5]) and (ARGV[6] == '' or v[2] == ARGV[6])
    and (ARGV[7] == '' or v[3] == ARGV[7]) then
    if #reply == limit then break end
    reply[#reply + 1] = ARGV[3] == '1' and {call('HGETALL', key), call('HGETALL', base .. 'big:' .. member)} or v[4]
  end
end
return {more, reply}
""",
)

#: Every queue's jobs by status, the paused queues, and since when each queue's oldest claimable job has been due.
COUNTS = Script(
    "counts",
    COMMON,
    """
local found, oldest, seen = call('HGETALL', base .. 'counts'), {}, {}
for i = 1, #found, 2 do
  local queue = string.match(found[i], ' (.*)$')
  if not seen[queue] then
    seen[queue] = true
    local first
    for priority = 1, 10 do
      local due = call('ZRANGEBYSCORE', base .. 'waiting:' .. queue, priority * LEVEL, priority * LEVEL + now,
        'WITHSCORES', 'LIMIT', 0, 1)
      local run_at = due[2] and due[2] - priority * LEVEL
      if run_at and (not first or run_at < first) then first = run_at end
    end
    if first then
      oldest[#oldest + 1] = queue
      oldest[#oldest + 1] = first
    end
  end
end
return {found, call('SMEMBERS', base .. 'paused'), oldest}
""",
)

#: ARGV: queue, 1 to pause it, 0 to resume it and wake the workers.
PAUSE = Script(
    "pause",
    COMMON,
    """
if ARGV[2] == '1' then return call('SADD', base .. 'paused', ARGV[1]) end
call('SREM', base .. 'paused', ARGV[1])
ring(ARGV[1], call('ZCARD', base .. 'waiting:' .. ARGV[1]))
return 0
""",
)

#: Has the end of a job announced. ARGV: id. 0 where it has ended already, or is not there.
WATCH = Script(
    "watch",
    """
local seq = call('ZSCORE', base .. 'jobs', ARGV[1])
if not seq then return 0 end
local key = base .. 'job:' .. string.format('%014.0f', seq)
if call('HEXISTS', key, 'finished_at') == 1 then return 0 end
call('HSET', key, 'watched', '1')
return 1
""",
)

#: The time.
NOW = Script("now", "return now")
