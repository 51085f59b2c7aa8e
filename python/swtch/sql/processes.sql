-- How often the threads of each process left their CPUs, and how long they ran and waited:
-- `swtch report --by process`.
--
-- A row: a process.
--
-- process        VARCHAR   name of its leader; '(unnamed)' for all tasks whose names were never written
-- pid            UINTEGER  process id
-- command        VARCHAR   its command line, as it was read last; null where none was
-- switches       BIGINT    how many switches
-- share_pct      DOUBLE    of all switches, in percent
-- voluntary      BIGINT    of these, switches that the kernel counts as voluntary (nvcsw)
-- involuntary    BIGINT    the others
-- main_reason    VARCHAR   the most frequent reason; on a tie the first of the list; null without a switch
-- ran_ns         BIGINT    time on a CPU, of runs whose length is known, in ns
-- waits          BIGINT    waits that ended in a run
-- off_ns         BIGINT    their length, in ns
-- blocked_ns     BIGINT    of that, until the wakeup, in ns; null if no wakeup was recorded
-- runq_ns        BIGINT    of that, runnable without a CPU, in ns; null if no wakeup was recorded
-- open_waits     BIGINT    waits that were open when the recording ended
-- open_ns        BIGINT    how long they had lasted, in ns
-- trace          VARCHAR   the trace, by the path that was given
WITH summed AS (
    SELECT
        trace,
        process,
        SUM(switches) AS switches,
        SUM(voluntary) AS voluntary,
        SUM(ran_ns) AS ran_ns,
        SUM(waits) AS waits,
        SUM(split_waits) AS split_waits,
        SUM(off_ns) AS off_ns,
        SUM(blocked_ns) AS blocked_ns,
        SUM(runq_ns) AS runq_ns,
        SUM(open_waits) AS open_waits,
        SUM(open_ns) AS open_ns
    FROM amounts
    GROUP BY trace, process
),

by_reason AS (
    SELECT
        amounts.trace,
        amounts.process,
        amounts.reason,
        ROW_NUMBER() OVER (
            PARTITION BY amounts.trace, amounts.process
            ORDER BY COUNT(*) DESC, MIN(reason_words.place)
        ) AS nth
    FROM amounts
    LEFT JOIN reason_words ON amounts.reason = reason_words.reason
    WHERE amounts.switches = 1
    GROUP BY amounts.trace, amounts.process, amounts.reason
)

SELECT
    COALESCE(processes.comm, '(unnamed)') AS process,
    processes.pid,
    processes.command,
    CAST(summed.switches AS BIGINT) AS switches,
    CAST(summed.switches AS DOUBLE) * 100
    / NULLIF(SUM(summed.switches) OVER (PARTITION BY summed.trace), 0) AS share_pct,
    CAST(summed.voluntary AS BIGINT) AS voluntary,
    CAST(summed.switches - summed.voluntary AS BIGINT) AS involuntary,
    by_reason.reason AS main_reason,
    CAST(summed.ran_ns AS BIGINT) AS ran_ns,
    CAST(summed.waits AS BIGINT) AS waits,
    CAST(summed.off_ns AS BIGINT) AS off_ns,
    CASE
        WHEN summed.waits = 0 OR summed.split_waits > 0 THEN CAST(summed.blocked_ns AS BIGINT)
    END AS blocked_ns,
    CASE
        WHEN summed.waits = 0 OR summed.split_waits > 0 THEN CAST(summed.runq_ns AS BIGINT)
    END AS runq_ns,
    CAST(summed.open_waits AS BIGINT) AS open_waits,
    CAST(summed.open_ns AS BIGINT) AS open_ns,
    summed.trace
FROM summed
LEFT JOIN by_reason
    ON
        summed.trace = by_reason.trace
        AND COALESCE(summed.process, 0) = COALESCE(by_reason.process, 0)
        AND by_reason.nth = 1
LEFT JOIN processes ON summed.trace = processes.trace AND summed.process = processes.process
ORDER BY summed.trace, summed.switches DESC, summed.process
