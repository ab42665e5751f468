"""What runs inside the database, so that claiming, and settling with the next claim, is one round trip.

Functions of PL/pgSQL keep the plans of their statements for the life of a session. A plain statement would be planned
each time: prepared statements do not work through a pooler that gives each transaction another session.

A plan that was made when the table was empty must serve when it has a million rows. So a worker's session plans with
indexes alone (``PLANNER``); where sessions are pooled, the function ``pooled_turn`` does so for its own duration, which
costs each call a little.
"""

from __future__ import annotations

_WAITING = "j.status IN ('queued', 'retry_wait')"

#: The columns of ``model.Life``, in its order, as one text: what a decision was made about, to compare with.
LIFE = """concat_ws(',', j.status, j.token, j.attempt, j.max_attempts, j.interruptions, j.losses, j.cancel_requested,
    j.run_at, j.backoff_ms)"""

#: What a session that only works off jobs is set to.
PLANNER = (
    ("enable_seqscan", "off"), ("enable_sort", "off"), ("enable_bitmapscan", "off"),
    ("plan_cache_mode", "force_generic_plan"),
)  # fmt: skip

_CLOCK = """
CREATE FUNCTION {s}.now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint $$;
"""

_CLAIMED = """
    OUT o_key bigint, OUT o_id uuid, OUT o_task text, OUT o_queue text, OUT o_attempt integer,
    OUT o_max_attempts integer, OUT o_token bigint, OUT o_timeout_ms integer, OUT o_data text, OUT o_due_in bigint"""

_CLAIMANT = """
    a_names text[], a_lease_ms bigint, a_pool text, a_generation bigint, a_slot integer, a_incarnation bigint,
    a_unsure boolean"""

_TURN_IN = f"""
    a_key bigint, a_token bigint, a_result text, a_life text, a_changes jsonb, a_ahead boolean, {_CLAIMANT}"""

# One turn of a worker: settles the job in hand, where there is one, and claims the next.
#
# With ``a_result`` the job is completed, as the model says; a repetition, after a reply was lost, fits. With
# ``a_changes`` what the model decided about ``a_life`` is written; where the job has another life by now nothing
# happens, and the decision has to be made again.
#
# The claim: queues in their order; in a queue the first priority that has anything, its first due job that nobody else
# is just claiming; where it has none that is due, the next priority. Without a job: when the first one will be due.
# ``a_unsure``: a reply may have been lost, so what this very worker holds already comes first.
_TURN = f"""
CREATE FUNCTION {{s}}.turn({_TURN_IN}, OUT o_settled boolean, {_CLAIMED}) LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := {{s}}.now_ms();
    v_name text;
    v_priority integer;
    v_first bigint;
    v_soonest bigint;
    v_watched boolean;
    v_id uuid;
BEGIN
    IF a_result IS NOT NULL THEN
        UPDATE {{s}}.jobs SET status = 'completed', finished_at = v_now, result = a_result, error = NULL
        WHERE seq = a_key AND token = a_token AND status = 'processing' RETURNING watched, id INTO v_watched, v_id;
        o_settled := FOUND;
        IF v_watched THEN
            PERFORM pg_notify({{result}} || v_id, '');
        ELSIF NOT o_settled AND a_unsure THEN
            o_settled := EXISTS (SELECT FROM {{s}}.jobs WHERE seq = a_key AND token = a_token AND status = 'completed');
        END IF;
    ELSIF a_changes IS NOT NULL THEN
        o_settled := cardinality({{s}}.apply(ARRAY[a_key], ARRAY[a_life], ARRAY[a_changes], false)) > 0;
        IF NOT o_settled THEN RETURN; END IF;
    END IF;
    IF NOT a_ahead THEN RETURN; END IF;
    IF a_unsure THEN
        UPDATE {{s}}.jobs SET lease_until = v_now + a_lease_ms WHERE seq = (
            SELECT j.seq FROM {{s}}.jobs j WHERE j.status = 'processing' AND j.pool_id = a_pool AND j.slot = a_slot
            AND j.generation = a_generation AND j.incarnation = a_incarnation AND j.seq IS DISTINCT FROM a_key LIMIT 1)
        RETURNING seq, id, task, queue, attempt, max_attempts, token, timeout_ms, data
        INTO o_key, o_id, o_task, o_queue, o_attempt, o_max_attempts, o_token, o_timeout_ms, o_data;
        IF FOUND THEN RETURN; END IF;
    END IF;
    FOREACH v_name IN ARRAY a_names LOOP
        CONTINUE WHEN EXISTS (SELECT FROM {{s}}.paused p WHERE p.queue = v_name);
        v_priority := 0;
        LOOP
            SELECT j.priority, j.run_at INTO v_priority, v_first FROM {{s}}.jobs j
            WHERE {_WAITING} AND j.queue = v_name AND j.priority >= v_priority
            ORDER BY j.priority, j.run_at, j.seq LIMIT 1;
            EXIT WHEN NOT FOUND;
            IF v_first <= v_now THEN
                SELECT j.seq INTO o_key FROM {{s}}.jobs j
                WHERE {_WAITING} AND j.queue = v_name AND j.priority = v_priority AND j.run_at <= v_now
                ORDER BY j.run_at, j.seq LIMIT 1 FOR UPDATE SKIP LOCKED;
                IF FOUND THEN
                    UPDATE {{s}}.jobs SET status = 'processing', attempt = attempt + 1, token = token + 1,
                        started_at = v_now, lease_until = v_now + a_lease_ms,
                        deadline = CASE timeout_ms WHEN 0 THEN NULL ELSE v_now + timeout_ms END,
                        pool_id = a_pool, generation = a_generation, slot = a_slot, incarnation = a_incarnation
                    WHERE seq = o_key
                    RETURNING id, task, queue, attempt, max_attempts, token, timeout_ms, data
                    INTO o_id, o_task, o_queue, o_attempt, o_max_attempts, o_token, o_timeout_ms, o_data;
                    RETURN;
                END IF;
                SELECT j.run_at INTO v_first FROM {{s}}.jobs j
                WHERE {_WAITING} AND j.queue = v_name AND j.priority = v_priority AND j.run_at > v_now
                ORDER BY j.run_at, j.seq LIMIT 1;
            END IF;
            v_soonest := least(v_soonest, v_first);
            v_priority := v_priority + 1;
        END LOOP;
    END LOOP;
    o_key := NULL;
    o_due_in := v_soonest - v_now; -- null where nothing waits
END $$;

CREATE FUNCTION {{s}}.pooled_turn({_TURN_IN}, OUT o_settled boolean, {_CLAIMED}) LANGUAGE plpgsql
{" ".join(f"SET {name} = {value}" for name, value in PLANNER)} AS $$
BEGIN
    SELECT t.* INTO o_settled, o_key, o_id, o_task, o_queue, o_attempt, o_max_attempts, o_token, o_timeout_ms, o_data,
        o_due_in
    FROM {{s}}.turn(a_key, a_token, a_result, a_life, a_changes, a_ahead, a_names, a_lease_ms, a_pool, a_generation,
        a_slot, a_incarnation, a_unsure) t;
END $$;
"""

# Writes what the model decided about jobs, each only if its life is still what the decision was about. No lock is ever
# held from one round trip to the next: a process that is frozen in between would hold up all others.
_APPLY = f"""
CREATE FUNCTION {{s}}.apply(a_keys bigint[], a_lives text[], a_changes jsonb[], a_skip boolean, OUT o_done bigint[])
LANGUAGE plpgsql AS $$
DECLARE
    v_old {{s}}.jobs;
    v_new {{s}}.jobs;
BEGIN
    o_done := '{{}}';
    FOR i IN 1 .. cardinality(a_keys) LOOP
        IF a_skip THEN
            SELECT * INTO v_old FROM {{s}}.jobs j WHERE j.seq = a_keys[i] AND {LIFE} = a_lives[i]
            FOR UPDATE SKIP LOCKED;
        ELSE
            SELECT * INTO v_old FROM {{s}}.jobs j WHERE j.seq = a_keys[i] AND {LIFE} = a_lives[i] FOR UPDATE;
        END IF;
        CONTINUE WHEN NOT FOUND;
        v_new := jsonb_populate_record(v_old, a_changes[i]);
        UPDATE {{s}}.jobs SET status = v_new.status, attempt = v_new.attempt, interruptions = v_new.interruptions,
            losses = v_new.losses, cancel_requested = v_new.cancel_requested, run_at = v_new.run_at,
            error = v_new.error, progress = v_new.progress, finished_at = v_new.finished_at
        WHERE seq = a_keys[i];
        o_done := o_done || a_keys[i];
        IF v_new.watched AND v_new.finished_at IS NOT NULL THEN
            PERFORM pg_notify({{result}} || v_new.id, '');
        END IF;
        IF v_new.status = 'queued' THEN
            PERFORM pg_notify({{bell}}, v_new.queue);
        END IF;
    END LOOP;
END $$;
"""

# Adds jobs in the order given. ``o_ids`` is null where each has its own id, else the ids in order, of the unfinished
# job that has the key where there is one. ``a_run_at`` null: at once, by this clock. ``a_again``: an answer may
# have been lost, so they may be there already.
_ENQUEUE = """
CREATE FUNCTION {s}.enqueue(
    a_id uuid[], a_task text[], a_queue text[], a_priority integer[], a_run_at bigint[], a_max_attempts integer[],
    a_timeout_ms integer[], a_backoff_ms integer[], a_unique text[], a_data text[], a_ring boolean, a_again boolean,
    OUT o_now bigint, OUT o_ids uuid[])
LANGUAGE plpgsql AS $$
DECLARE
    v_id uuid;
BEGIN
    o_now := {s}.now_ms();
    IF a_unique IS NULL THEN
        INSERT INTO {s}.jobs (id, task, queue, priority, enqueued_at, run_at, max_attempts, timeout_ms, backoff_ms,
            data)
        SELECT n.id, n.task, n.queue, n.priority, o_now, coalesce(n.run_at, o_now), n.max_attempts, n.timeout_ms,
            n.backoff_ms, n.data
        FROM unnest(a_id, a_task, a_queue, a_priority, a_run_at, a_max_attempts, a_timeout_ms, a_backoff_ms, a_data)
            WITH ORDINALITY AS n(id, task, queue, priority, run_at, max_attempts, timeout_ms, backoff_ms, data, nth)
        WHERE NOT a_again OR NOT EXISTS (SELECT FROM {s}.jobs j WHERE j.id = n.id)
        ORDER BY n.nth;
    ELSE
        o_ids := '{}';
        FOR i IN 1 .. cardinality(a_id) LOOP
            v_id := a_id[i];
            LOOP
                EXIT WHEN a_again AND EXISTS (SELECT FROM {s}.jobs j WHERE j.id = v_id);
                INSERT INTO {s}.jobs (id, task, queue, priority, enqueued_at, run_at, max_attempts, timeout_ms,
                    backoff_ms, unique_key, data)
                VALUES (a_id[i], a_task[i], a_queue[i], a_priority[i], o_now, coalesce(a_run_at[i], o_now),
                    a_max_attempts[i], a_timeout_ms[i], a_backoff_ms[i], a_unique[i], a_data[i])
                ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL AND finished_at IS NULL DO NOTHING
                RETURNING id INTO v_id;
                EXIT WHEN FOUND;
                SELECT j.id INTO v_id FROM {s}.jobs j WHERE j.unique_key = a_unique[i] AND j.finished_at IS NULL;
                EXIT WHEN FOUND; -- else that job has ended just now
            END LOOP;
            o_ids := o_ids || v_id;
        END LOOP;
    END IF;
    IF a_ring THEN
        PERFORM pg_notify({bell}, q) FROM unnest(a_queue) q GROUP BY q;
    END IF;
END $$;
"""

# Wakes the workers that wait, in a transaction of its own: one that notifies is held up by all others that do, while
# they flush to the disk. Who waits holds the lock shared; where it is free nobody waits, and nothing is said.
_RING = """
CREATE FUNCTION {s}.ring(a_queues text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF NOT pg_try_advisory_xact_lock({waiters}) THEN
        PERFORM pg_notify({bell}, q) FROM unnest(a_queues) q GROUP BY q;
    END IF;
END $$;
"""

CREATE = _CLOCK + _APPLY + _TURN + _ENQUEUE + _RING
