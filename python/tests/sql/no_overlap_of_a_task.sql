-- A task runs on one CPU at a time: its run begins when the one before has ended.
SELECT *
FROM (
    SELECT *, lag(ts_ns) OVER (PARTITION BY task ORDER BY file_row) AS before_ns
    FROM switch
    WHERE level = 'os' AND task <> 0
)
WHERE ts_ns - ran_ns < before_ns
