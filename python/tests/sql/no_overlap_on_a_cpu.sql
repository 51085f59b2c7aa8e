-- A CPU runs one task at a time: a run begins when the one before on its CPU has ended.
SELECT *
FROM (
    SELECT *, lag(ts_ns) OVER (PARTITION BY cpu ORDER BY file_row) AS before_ns
    FROM switch
    WHERE level = 'os'
)
WHERE ts_ns - ran_ns < before_ns
