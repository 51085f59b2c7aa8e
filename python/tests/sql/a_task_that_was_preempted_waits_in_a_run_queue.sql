-- A task that could have run on was never blocked: all of its time off the CPU was in a run queue.
SELECT *
FROM switch
WHERE
    level = 'os'
    AND off_reason IN ('slice', 'wakeup', 'class', 'yield')
    AND off_ns <> runq_ns
