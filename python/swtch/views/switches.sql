-- A row: a switch that reports count, with the names that its tasks had at that moment.
--
-- …                             all columns of the view `switch_rows`
-- comm, tid, pid                who left: name, thread id, process id
-- next_comm, next_tid, next_pid           who came; '(idle)' where the CPU had nothing to run
-- nominator_comm, nominator_tid, nominator_pid    whose wakeup or move asked for the reschedule
-- waker_comm, waker_tid, waker_pid        who ended the wait before the run, as called when it did
SELECT
    s.*,
    own.comm,
    own.tid,
    own.pid,
    came.comm AS next_comm,
    came.tid AS next_tid,
    came.pid AS next_pid,
    asked.comm AS nominator_comm,
    asked.tid AS nominator_tid,
    asked.pid AS nominator_pid,
    woke.comm AS waker_comm,
    woke.tid AS waker_tid,
    woke.pid AS waker_pid
FROM switch_rows AS s
LEFT JOIN identities AS own
    ON
        s.trace = own.trace
        AND s.task = own.task
        AND s.ts_ns >= own.from_ns
        AND s.ts_ns < own.until_ns
LEFT JOIN identities AS came
    ON
        s.trace = came.trace
        AND s.next_task = came.task
        AND s.ts_ns >= came.from_ns
        AND s.ts_ns < came.until_ns
LEFT JOIN identities AS asked
    ON
        s.trace = asked.trace
        AND s.nominator = asked.task
        AND s.ts_ns >= asked.from_ns
        AND s.ts_ns < asked.until_ns
LEFT JOIN identities AS woke
    ON
        s.trace = woke.trace
        AND s.waker = woke.task
        AND coalesce(s.woken_ns, s.ts_ns) >= woke.from_ns
        AND coalesce(s.woken_ns, s.ts_ns) < woke.until_ns
