-- Rows are in order of switch-out.
SELECT *
FROM (SELECT *, lag(ts_ns) OVER (ORDER BY file_row) AS before_ns FROM switch)
WHERE ts_ns < before_ns
