-- What threads waited for: futex words, pipes, sockets, files: `swtch report --by wait`.
--
-- A row: an object in one process. A futex word is an address there; the two ends of a pipe in two processes
-- are two rows with the same inode number. Waits without an object (sleep, poll, a child) are in no row.
--
-- wait_key    VARCHAR   address of the futex word or inode number of the file, in hexadecimal digits
-- kind        VARCHAR   futex, or what the file is: regular, block, char, fifo, socket, eventfd, …
-- process     VARCHAR   name of the process
-- pid         UINTEGER  process id
-- switches    BIGINT    switches into a wait for it
-- waits       BIGINT    waits for it that ended in a run
-- off_ns      BIGINT    their length, in ns
-- blocked_ns  BIGINT    of that, until the wakeup, in ns
-- runq_ns     BIGINT    of that, runnable without a CPU, in ns
-- waiters     BIGINT    how many threads waited for it
-- trace       VARCHAR   the trace, by the path that was given
WITH counted AS (
    SELECT
        s.trace,
        t.process,
        s.object_kind AS kind,
        s.object,
        1 AS switches,
        0 AS waits,
        0 AS off_ns,
        0 AS blocked_ns,
        0 AS runq_ns,
        COALESCE(t.task, 0) AS waiter
    FROM switch_rows AS s
    LEFT JOIN tasks AS t ON s.trace = t.trace AND s.task = t.task
    WHERE s.object_kind IS NOT NULL
    UNION ALL
    SELECT
        w.trace,
        t.process,
        w.object_kind,
        w.object,
        0,
        1,
        w.off_ns,
        COALESCE(w.blocked_ns, 0),
        COALESCE(w.runq_ns, 0),
        NULL
    FROM wait_rows AS w
    LEFT JOIN tasks AS t ON w.trace = t.trace AND w.task = t.task
    WHERE w.object_kind IS NOT NULL AND w.off_ns IS NOT NULL
)

SELECT
    counted.object AS wait_key,
    counted.kind,
    COALESCE(processes.comm, '(unnamed)') AS process,
    processes.pid,
    CAST(SUM(counted.switches) AS BIGINT) AS switches,
    CAST(SUM(counted.waits) AS BIGINT) AS waits,
    CAST(SUM(counted.off_ns) AS BIGINT) AS off_ns,
    CAST(SUM(counted.blocked_ns) AS BIGINT) AS blocked_ns,
    CAST(SUM(counted.runq_ns) AS BIGINT) AS runq_ns,
    COUNT(DISTINCT counted.waiter) AS waiters,
    counted.trace
FROM counted
LEFT JOIN processes ON counted.trace = processes.trace AND counted.process = processes.process
GROUP BY
    counted.trace,
    counted.object,
    counted.kind,
    counted.process,
    processes.comm,
    processes.pid
ORDER BY counted.trace, blocked_ns DESC, switches DESC, processes.pid, counted.kind, wait_key
