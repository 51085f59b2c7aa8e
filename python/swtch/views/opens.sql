-- A row: a wait or run that was still open when the recording ended, of a task whose switches are counted.
--
-- trace      VARCHAR   the trace, by the path that was given
-- task       UINTEGER  the task (tasks.task)
-- reason     VARCHAR   why it had left its CPU; null when it was running
-- since_ns   BIGINT    since when, on the trace clock
-- lasted_ns  BIGINT    for how long, until the end of the recording
-- comm, tid, pid       name, thread id, process id
SELECT o.trace, o.task, o.reason, o.since_ns, o.lasted_ns, t.comm, t.tid, t.pid
FROM stored.open AS o
LEFT JOIN tasks AS t ON o.trace = t.trace AND o.task = t.task
WHERE o.task <> 0 AND coalesce(t.in_scope, true)
