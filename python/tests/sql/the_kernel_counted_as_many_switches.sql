-- The kernel counts a task's switches itself (nvcsw, nivcsw). Between the first and the last time that they were told of a
-- task in scope which ended, they grew by as many as the task has rows, voluntary and not.
WITH told AS (
    SELECT
        task,
        arg_min(ts_ns, file_row) AS first_ns,
        arg_max(ts_ns, file_row) AS last_ns,
        arg_max(voluntary_switches, file_row) - arg_min(voluntary_switches, file_row) AS voluntary,
        arg_max(involuntary_switches, file_row) - arg_min(involuntary_switches, file_row) AS involuntary
    FROM task
    WHERE task <> 0 AND voluntary_switches IS NOT NULL
    GROUP BY task
    HAVING bool_and(in_scope) AND arg_max(kind, file_row) = 'exit'
),

counted AS (
    SELECT
        told.task,
        count(*) FILTER (WHERE s.evidence_bits & 1 = 1) AS voluntary,
        count(*) FILTER (WHERE s.evidence_bits & 1 = 0) AS involuntary
    FROM told
    INNER JOIN switch AS s ON told.task = s.task
    WHERE s.level = 'os' AND s.ts_ns > told.first_ns AND s.ts_ns <= told.last_ns
    GROUP BY told.task
)

SELECT
    told.*,
    coalesce(counted.voluntary, 0) AS rows_voluntary,
    coalesce(counted.involuntary, 0) AS rows_involuntary
FROM told
LEFT JOIN counted ON told.task = counted.task
WHERE told.voluntary <> rows_voluntary OR told.involuntary <> rows_involuntary
