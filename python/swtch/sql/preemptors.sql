-- Who took the CPU from running threads, and whose wakeups asked for that: the columns `switches` and
-- `by_its_wakeup` of `swtch report --by preemptor`. How long the threads that lost the CPU waited for each
-- of those that had it is only in that report: it follows every CPU through time.
--
-- A row: a task that took the CPU, or whose wakeup asked for a preemption. These may be two tasks.
--
-- preemptor      VARCHAR   its last name; '(unnamed)' for tasks whose names were never written
-- kind           VARCHAR   task: its own switches are counted; other task: they are not
-- tid            UINTEGER  thread id; null for idle
-- pid            UINTEGER  process id; null for idle
-- switches       BIGINT    how often it took the CPU from a thread that could have run on
-- by_its_wakeup  BIGINT    how often its wakeup, or its move to that CPU, asked for a preemption
-- from_others    BIGINT    of `switches`, those that took the CPU from another process
-- trace          VARCHAR   the trace, by the path that was given
WITH preempted AS (
    SELECT trace, task, next_task, nominator
    FROM switch_rows
    WHERE category = 'preemption'
),

counted AS (
    SELECT
        p.trace,
        p.next_task AS task,
        1 AS switches,
        0 AS by_its_wakeup,
        -- Whether they are two processes is known only where both have names.
        CASE WHEN taker.process <> loser.process THEN 1 ELSE 0 END AS from_others
    FROM preempted AS p
    LEFT JOIN tasks AS taker ON p.trace = taker.trace AND p.next_task = taker.task
    LEFT JOIN tasks AS loser ON p.trace = loser.trace AND p.task = loser.task
    WHERE p.next_task <> 0
    UNION ALL
    SELECT trace, nominator, 0, 1, 0
    FROM preempted
    WHERE nominator IS NOT NULL
),

-- Tasks without a name are one row.
named AS (
    SELECT
        c.trace,
        CASE WHEN t.task IS NULL AND c.task <> 0 THEN NULL ELSE c.task END AS task,
        c.switches,
        c.by_its_wakeup,
        c.from_others
    FROM counted AS c
    LEFT JOIN tasks AS t ON c.trace = t.trace AND c.task = t.task
)

SELECT
    CASE WHEN n.task = 0 THEN '(idle)' ELSE COALESCE(t.comm, '(unnamed)') END AS preemptor,
    CASE
        WHEN n.task = 0 OR NOT COALESCE(t.in_scope, TRUE) THEN 'other task'
        ELSE 'task'
    END AS kind,
    t.tid,
    t.pid,
    CAST(SUM(n.switches) AS BIGINT) AS switches,
    CAST(SUM(n.by_its_wakeup) AS BIGINT) AS by_its_wakeup,
    CAST(SUM(n.from_others) AS BIGINT) AS from_others,
    n.trace
FROM named AS n
LEFT JOIN tasks AS t ON n.trace = t.trace AND n.task = t.task
GROUP BY n.trace, n.task, t.comm, t.in_scope, t.tid, t.pid
ORDER BY n.trace, switches DESC, by_its_wakeup DESC, n.task
