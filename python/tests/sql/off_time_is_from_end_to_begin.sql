-- A task's time off the CPU is, to the nanosecond, from the end of its run before to the begin of this one.
SELECT *, ts_ns - ran_ns - before_ns AS expected_ns
FROM (
    SELECT *, lag(ts_ns) OVER (PARTITION BY task ORDER BY file_row) AS before_ns
    FROM switch
    WHERE level = 'os' AND task <> 0
)
WHERE off_reason IS NOT NULL AND before_ns IS NOT NULL AND off_ns <> ts_ns - ran_ns - before_ns
