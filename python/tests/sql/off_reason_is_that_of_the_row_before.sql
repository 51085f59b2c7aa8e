-- A wait has the reason of the switch that began it: that of the task's row before.
SELECT *
FROM (
    SELECT *, lag(reason) OVER (PARTITION BY task ORDER BY file_row) AS before_reason
    FROM switch
    WHERE level = 'os' AND task <> 0
)
WHERE off_reason IS NOT NULL AND before_reason IS NOT NULL AND off_reason <> before_reason
