"""The scripts of ``Queue``'s side: adding, steering, looking. Each is one round trip."""

from __future__ import annotations

from platform_worker.sources.redis.scripts import CELLS, COMMON, COUNT, LIFE, SPEC, Script

#: Adds jobs. ARGV: nine a job, in the order of ``client_store``. The reply: the time, and an id a job.
#: A job that is there already, from a request whose reply was lost, is not added again.
ENQUEUE = Script(
    "enqueue",
    COUNT,
    COMMON,
    """
local reply, rings = {now}, {}
local seq = call('INCRBY', base .. 'seq', #ARGV / 9) - #ARGV / 9
for i = 1, #ARGV, 9 do
  local id, queue, unique, timeout_ms, data = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 5], ARGV[i + 8]
  local held = unique ~= '' and call('HGET', base .. 'unique', unique)
  seq = seq + 1
  reply[#reply + 1] = held or id
  if not held and call('ZADD', base .. 'jobs', 'NX', seq, id) == 1 then
    local member = string.format('%014.0f', seq)
    local key = base .. 'job:' .. member
    if #data > 64 then
      call('HSET', base .. 'big:' .. member, 'data', data)
      data = ''
    end
    call('HSET', key, 'status', 'queued', 'id', id, 'task', ARGV[i + 6], 'spec', ARGV[i + 7], 'run_at', ARGV[i + 4],
      'data', data)
    if timeout_ms ~= '0' then call('HSET', key, 'timeout_ms', timeout_ms) end
    if unique ~= '' then
      call('HSET', key, 'unique', unique)
      call('HSET', base .. 'unique', unique, id)
    end
    call('ZADD', base .. 'waiting:' .. queue, ARGV[i + 3] * LEVEL + ARGV[i + 4], member)
    rings[queue] = (rings[queue] or 0) + 1
  end
end
for queue, n in pairs(rings) do
  call('SADD', base .. 'queues', queue)
  ring(queue, n)
end
return reply
""",
)

#: ARGV: id, ``cancel`` or ``retry``, the error of a job that is cancelled before it ran. The reply: nothing where the
#: job is not there, 1 where it was refused, else 0.
CHANGE = Script(
    "change",
    SPEC,
    COUNT,
    COMMON,
    LIFE,
    CELLS,
    """
local seq = call('ZSCORE', base .. 'jobs', ARGV[1])
if not seq then return nil end
local job = life(string.format('%014.0f', seq))
if not job then return nil end
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
    SPEC,
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
  local v = call('HMGET', key, 'status', 'spec', 'task', 'id')
  if v[1] and tonumber(member) < most and (ARGV[5] == '' or v[1] == ARGV[5])
    and (ARGV[6] == '' or string.match(v[2], SPEC) == ARGV[6]) and (ARGV[7] == '' or v[3] == ARGV[7]) then
    if #reply == limit then break end
    reply[#reply + 1] = ARGV[3] == '1' and {call('HGETALL', key), call('HGETALL', base .. 'big:' .. member)} or v[4]
  end
end
return {more, reply}
""",
)

#: What of the counts is counted, by status and queue; the queues of the jobs that are held; and a row for each queue
#: that was ever enqueued to: how many wait, and since when the oldest claimable one has been due. And the paused ones.
COUNTS = Script(
    "counts",
    SPEC,
    COUNT,
    """
local held, rows = {}, {}
for i, member in ipairs(call('ZRANGE', base .. 'leases', 0, -1)) do
  held[i] = string.match(call('HGET', base .. 'job:' .. member, 'spec') or '', SPEC) or ''
end
for i, queue in ipairs(call('SMEMBERS', base .. 'queues')) do
  local waiting, first = base .. 'waiting:' .. queue, -1
  for priority = 1, 10 do
    local due = call('ZRANGEBYSCORE', waiting, priority * LEVEL, priority * LEVEL + now, 'WITHSCORES', 'LIMIT', 0, 1)
    local run_at = due[2] and due[2] - priority * LEVEL
    if run_at and (first < 0 or run_at < first) then first = run_at end
  end
  rows[i] = {queue, call('ZCOUNT', waiting, LEVEL, '+inf'), first}
end
return {call('HGETALL', base .. 'counts'), held, rows, call('SMEMBERS', base .. 'paused')}
""",
)

#: ARGV: queue, 1 to pause it, 0 to resume it and wake the workers.
PAUSE = Script(
    "pause",
    COMMON,
    """
local queue, waiting = ARGV[1], base .. 'waiting:' .. ARGV[1]
if ARGV[2] == '1' then
  call('SADD', base .. 'paused', queue)
  return call('ZADD', waiting, 0, 'paused')
end
call('SREM', base .. 'paused', queue)
call('ZREM', waiting, 'paused')
ring(queue, call('ZCARD', waiting))
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
