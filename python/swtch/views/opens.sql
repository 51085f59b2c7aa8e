-- A row: a wait or run that no switch tells, of a task whose switches are counted: one that was open when the
-- recording ended, or the wait before such a run.
--
-- trace      VARCHAR   the trace, by the path that was given
-- task       UINTEGER  the task (tasks.task)
-- reason     VARCHAR   why it had left its CPU; null for a run
-- since_ns   BIGINT    since when, on the trace clock
-- lasted_ns  BIGINT    for how long, until the end of the recording or the begin of that run
-- runq_ns    BIGINT    of a wait, how long it could run and had no CPU, at its end; null if not known
-- cpu        USMALLINT the CPU on which it ran, or for which it waited; null if not known
-- comm, tid, pid       name, thread id, process id
SELECT o.trace, o.task, o.reason, o.since_ns, o.lasted_ns, o.runq_ns, o.cpu, t.comm, t.tid, t.pid
FROM stored.open AS o
LEFT JOIN tasks AS t ON o.trace = t.trace AND o.task = t.task
WHERE o.task <> 0 AND coalesce(t.in_scope, true)
