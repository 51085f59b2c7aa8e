-- What each thread did in one span of time: it ran, was blocked, or waited for a CPU.
--
-- A row: a stretch of a thread's life that overlaps the span. Stretches are whole: the first may begin before
-- the span, the last may end after it.
--
-- $since_ns  BIGINT  begin of the span, in ns since the start of the trace
-- $until_ns  BIGINT  its end; the moment itself does not belong to it
--
-- begin_ns  BIGINT    when it began, in ns since the start of the trace (below 0: before the recording)
-- end_ns    BIGINT    when it ended; for one that was still open, the end of the recording
-- dur_ns    BIGINT    its length, in ns
-- state     VARCHAR   running; blocked (until the wakeup); runnable (waiting for a CPU); off_cpu (the wakeup was
--                     not recorded, so that the two cannot be told apart)
-- thread    VARCHAR   name that the thread had at its end
-- tid       UINTEGER  thread id
-- pid       UINTEGER  process id
-- cpu       USMALLINT the CPU: of a run; of a wait, where the thread ran afterwards; null if open
-- reason    VARCHAR   of a run, why it ended; of a wait, why it began; null for a run that was still open
-- waker     VARCHAR   of a wait that was ended by a task, its name
-- is_open   BOOLEAN   whether it was still going on when the recording ended
-- trace     VARCHAR   the trace, by the path that was given
WITH stretches AS (
    SELECT
        trace,
        resumed_ns AS begin_ns,
        ts_ns AS end_ns,
        'running' AS state,
        comm,
        tid,
        pid,
        cpu,
        reason,
        NULL AS waker,
        FALSE AS is_open
    FROM switches
    WHERE ran_ns IS NOT NULL
    UNION ALL
    SELECT
        trace,
        began_ns,
        woken_ns,
        'blocked',
        comm,
        tid,
        pid,
        cpu,
        wait_reason,
        CASE WHEN waker_kind IN ('task', 'sender') THEN waker_comm END,
        FALSE
    FROM switches
    WHERE blocked_ns > 0
    UNION ALL
    SELECT
        trace,
        woken_ns,
        resumed_ns,
        'runnable',
        comm,
        tid,
        pid,
        cpu,
        wait_reason,
        CASE WHEN waker_kind IN ('task', 'sender') THEN waker_comm END,
        FALSE
    FROM switches
    WHERE runq_ns > 0
    UNION ALL
    SELECT trace, began_ns, resumed_ns, 'off_cpu', comm, tid, pid, cpu, wait_reason, NULL, FALSE
    FROM switches
    WHERE wait_ns > 0 AND runq_ns IS NULL
    UNION ALL
    SELECT
        trace,
        since_ns,
        since_ns + lasted_ns,
        CASE WHEN reason IS NULL THEN 'running' ELSE 'off_cpu' END,
        comm,
        tid,
        pid,
        NULL,
        reason,
        NULL,
        TRUE
    FROM opens
)

SELECT
    s.begin_ns - m.start_ns AS begin_ns,
    s.end_ns - m.start_ns AS end_ns,
    s.end_ns - s.begin_ns AS dur_ns,
    s.state,
    COALESCE(s.comm, '(unnamed)') AS thread,
    s.tid,
    s.pid,
    s.cpu,
    s.reason,
    s.waker,
    s.is_open,
    s.trace
FROM stretches AS s
INNER JOIN meta AS m ON s.trace = m.trace
-- A wait before a run that began before the recording has no place in time.
WHERE
    s.begin_ns < m.start_ns + CAST($until_ns AS BIGINT)
    AND s.end_ns > m.start_ns + CAST($since_ns AS BIGINT)
ORDER BY s.trace, begin_ns, end_ns, s.tid
