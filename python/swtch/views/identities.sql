-- A row: what a task was called in one span of time. The spans of a task do not overlap and leave no gap.
--
-- trace    VARCHAR   the trace, by the path that was given
-- task     UINTEGER  the task (task.task); 0 is idle
-- from_ns  BIGINT    from when on, on the trace clock; 0 for the first row of a task, because a task may
--                    be recorded a moment before the row that names it
-- until_ns BIGINT    until when; the moment itself does not belong to it
-- comm     VARCHAR   its name; bytes that are no UTF-8 are U+FFFD
-- tid      UINTEGER  its thread id; null for idle
-- pid      UINTEGER  its process id; null for idle
WITH change AS (
    SELECT *, min(ts_ns) OVER (PARTITION BY trace, task) AS first_ns
    FROM stored.task
    WHERE task <> 0
    -- Of several rows of one moment, the last one that was written holds from then on.
    QUALIFY row_number() OVER (PARTITION BY trace, task, ts_ns ORDER BY file_row DESC) = 1
)

SELECT
    trace,
    task,
    CASE WHEN ts_ns = first_ns THEN 0 ELSE ts_ns END AS from_ns,
    lead(ts_ns, 1, 9223372036854775807) OVER (PARTITION BY trace, task ORDER BY ts_ns) AS until_ns,
    comm,
    tid,
    pid
FROM change
UNION ALL
SELECT trace, 0, 0, 9223372036854775807, '(idle)', NULL, NULL
FROM stored.meta
