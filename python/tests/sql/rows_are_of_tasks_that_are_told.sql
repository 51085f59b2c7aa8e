-- Each row is of a task that the table `task` tells of, from the first moment on.
SELECT s.*
FROM switch AS s
WHERE s.level = 'os' AND s.task <> 0 AND NOT EXISTS (FROM task AS t WHERE t.task = s.task)
