-- A row: a switch that reports count, with names, on the wall clock: what a lake keeps of a trace.
--
-- The table `labels` has one row: the segment, its host, and wall clock minus trace clock (offset_ns).
WITH task_cgroups AS (
    SELECT task, arg_max(cgroup, (ts_ns, file_row)) AS cgroup
    FROM stored.task
    WHERE task <> 0
    GROUP BY task
),

paths AS (
    SELECT cgroup, max(path) AS path
    FROM stored.cgroup
    GROUP BY cgroup
)

SELECT
    labels.segment,
    labels.host,
    s.ts_ns + labels.offset_ns AS time_ns,
    s.cpu,
    s.tid,
    s.pid,
    coalesce(s.comm, '(unnamed)') AS comm,
    coalesce(own.path, '#' || s.cgroup) AS cgroup,
    s.category,
    s.reason,
    s.certainty,
    s.class,
    s.is_voluntary,
    s.ran_ns,
    s.wait_reason,
    s.wait_ns AS off_ns,
    s.blocked_ns,
    s.runq_ns,
    -- The next row of the task has the wait that this switch began.
    lead(s.runq_ns) OVER (PARTITION BY s.task ORDER BY s.ts_ns, s.file_row) AS after_runq_ns,
    s.need_resched_delay_ns,
    s.irq_ns,
    s.stolen_ns,
    s.object_kind,
    s.next_tid,
    s.next_pid,
    s.next_comm,
    coalesce(came.path, '#' || next_task.cgroup) AS next_cgroup,
    s.nominator_pid,
    s.nominator_comm,
    s.waker_kind,
    s.waker_pid,
    s.waker_comm
FROM switches AS s
CROSS JOIN labels
LEFT JOIN paths AS own ON s.cgroup = own.cgroup
LEFT JOIN task_cgroups AS next_task ON s.next_task = next_task.task
LEFT JOIN paths AS came ON next_task.cgroup = came.cgroup
ORDER BY s.ts_ns, s.file_row
