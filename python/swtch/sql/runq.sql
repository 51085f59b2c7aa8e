-- How long threads that could run waited for a CPU (run-queue time, CPU wait).
--
-- A row: a thread that waited for a CPU. Percentiles are exact: lengths that occurred, not edges of buckets.
--
-- thread          VARCHAR   its last name; '(unnamed)' for all tasks whose names were never written
-- tid             UINTEGER  thread id
-- pid             UINTEGER  process id
-- waits           BIGINT    waits whose run-queue time is known
-- runq_ns         BIGINT    its run-queue time in all, in ns
-- share_pct       DOUBLE    of the run-queue time of all threads, in percent
-- runq_mean_ns    DOUBLE    mean of a wait, in ns
-- runq_p50_ns     BIGINT    what half of the waits did not exceed, in ns
-- runq_p90_ns     BIGINT    the same of 90 in 100 waits
-- runq_p99_ns     BIGINT    the same of 99 in 100 waits
-- runq_max_ns     BIGINT    the longest wait, in ns
-- preempted_waits BIGINT    of these, waits that began with a preemption or a yield
-- trace           VARCHAR   the trace, by the path that was given
SELECT
    COALESCE(t.comm, '(unnamed)') AS thread,
    t.tid,
    t.pid,
    COUNT(*) AS waits,
    CAST(SUM(s.runq_ns) AS BIGINT) AS runq_ns,
    CAST(SUM(s.runq_ns) AS DOUBLE) * 100
    / NULLIF(SUM(SUM(s.runq_ns)) OVER (PARTITION BY s.trace), 0) AS share_pct,
    CAST(SUM(s.runq_ns) AS DOUBLE) / COUNT(*) AS runq_mean_ns,
    PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY s.runq_ns) AS runq_p50_ns,
    PERCENTILE_DISC(0.9) WITHIN GROUP (ORDER BY s.runq_ns) AS runq_p90_ns,
    PERCENTILE_DISC(0.99) WITHIN GROUP (ORDER BY s.runq_ns) AS runq_p99_ns,
    MAX(s.runq_ns) AS runq_max_ns,
    COUNT(CASE WHEN w.category IN ('preemption', 'yield') THEN 1 END) AS preempted_waits,
    s.trace
FROM switch_rows AS s
LEFT JOIN tasks AS t ON s.trace = t.trace AND s.task = t.task
LEFT JOIN reason_words AS w ON s.off_reason = w.reason
WHERE s.runq_ns IS NOT NULL
GROUP BY s.trace, t.task, t.comm, t.tid, t.pid
ORDER BY s.trace, runq_ns DESC, t.task
