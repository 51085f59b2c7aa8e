-- A row: what one switch adds to the sums of its thread and of its process, or one wait that was open when the
-- recording ended. A sum needs no join for what of it is not known.
--
-- trace          VARCHAR   the trace, by the path that was given
-- task           UINTEGER  the task (tasks.task); null for all tasks whose names were never written
-- process        UINTEGER  its process (processes.process); null as `task` is
-- reason         VARCHAR   why the thread left; null for an open wait
-- switches       INTEGER   1, or 0 for an open wait
-- voluntary      INTEGER   1 if the kernel counts the switch as voluntary (nvcsw)
-- ran_ns         BIGINT    time on a CPU, in ns; 0 if not known
-- waits          INTEGER   1 if a wait ended in the run
-- split_waits    INTEGER   1 if the wakeup of that wait was recorded, too
-- off_ns         BIGINT    its length, in ns
-- blocked_ns     BIGINT    of that, until the wakeup, in ns; 0 if it was not recorded
-- runq_ns        BIGINT    of that, runnable without a CPU, in ns; 0 if the wakeup was not recorded
-- open_waits     INTEGER   1 for an open wait
-- open_ns        BIGINT    how long it had lasted, in ns
SELECT
    s.trace,
    t.task,
    t.process,
    s.reason,
    1 AS switches,
    CASE WHEN s.is_voluntary THEN 1 ELSE 0 END AS voluntary,
    coalesce(s.ran_ns, 0) AS ran_ns,
    CASE WHEN s.wait_ns IS NULL THEN 0 ELSE 1 END AS waits,
    CASE WHEN s.runq_ns IS NULL THEN 0 ELSE 1 END AS split_waits,
    coalesce(s.wait_ns, 0) AS off_ns,
    coalesce(s.blocked_ns, 0) AS blocked_ns,
    coalesce(s.runq_ns, 0) AS runq_ns,
    0 AS open_waits,
    0 AS open_ns
FROM switch_rows AS s
LEFT JOIN tasks AS t ON s.trace = t.trace AND s.task = t.task
UNION ALL
SELECT o.trace, t.task, t.process, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 1, o.lasted_ns
FROM opens AS o
LEFT JOIN tasks AS t ON o.trace = t.trace AND o.task = t.task
WHERE o.reason IS NOT NULL
