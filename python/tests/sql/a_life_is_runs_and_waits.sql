-- From the begin of a task's first run to the end of its last one it ran or was off the CPU: the lengths sum to the
-- time between. Tasks of which a run's length, or the switch before a run, was not recorded are left out.
WITH placed AS (
    SELECT *, row_number() OVER (PARTITION BY task ORDER BY file_row) AS place
    FROM switch
    WHERE level = 'os' AND task <> 0
)

SELECT
    task,
    max(ts_ns) - min(ts_ns - ran_ns) AS life_ns,
    sum(ran_ns) + coalesce(sum(off_ns) FILTER (WHERE place > 1), 0) AS told_ns
FROM placed
GROUP BY task
HAVING
    count(*) = count(ran_ns)
    AND bool_and(place = 1 OR off_reason IS NOT NULL)
    AND life_ns <> told_ns
