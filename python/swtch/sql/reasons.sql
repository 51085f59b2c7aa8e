-- Why threads left their CPUs, and what leaving for each reason cost: `swtch report --by reason`.
--
-- A row: a reason. The run of a switch counts for the reason that ended it; a wait counts for the reason
-- that began it.
--
-- reason            VARCHAR  why the thread left (docs/SCHEMA.md has the list)
-- category          VARCHAR  kind of reason
-- switches          BIGINT   how many switches
-- share_pct         DOUBLE   of all switches, in percent
-- certain_pct       DOUBLE   of these, switches whose reason the kernel itself gave, in percent; null without a switch
-- voluntary         BIGINT   of these, switches that the kernel counts as voluntary (nvcsw)
-- involuntary       BIGINT   the others
-- ran_ns            BIGINT   time on a CPU of the runs that ended, in ns
-- waits             BIGINT   waits that began for the reason and ended in a run
-- off_ns            BIGINT   their length, in ns
-- blocked_ns        BIGINT   of that, until the wakeup, in ns; null if no wakeup was recorded
-- runq_ns           BIGINT   of that, runnable without a CPU, in ns; null if no wakeup was recorded
-- open_waits        BIGINT   waits that were open when the recording ended
-- open_ns           BIGINT   how long they had lasted, in ns
-- runq_p50_ns       BIGINT   run-queue time that half of the waits did not exceed, in ns
-- runq_p99_ns       BIGINT   the same of 99 in 100 waits
-- runq_max_ns       BIGINT   the longest
-- off_p50_ns        BIGINT   the same three of the whole wait
-- off_p99_ns        BIGINT
-- off_max_ns        BIGINT
-- trace             VARCHAR  the trace, by the path that was given
WITH counted AS (
    SELECT
        trace,
        reason,
        1 AS switches,
        CASE WHEN certainty = 'certain' THEN 1 ELSE 0 END AS certain,
        CASE WHEN is_voluntary THEN 1 ELSE 0 END AS voluntary,
        COALESCE(ran_ns, 0) AS ran_ns,
        0 AS waits,
        0 AS split_waits,
        0 AS off_ns,
        0 AS blocked_ns,
        0 AS runq_ns,
        0 AS open_waits,
        0 AS open_ns
    FROM switch_rows
    UNION ALL
    SELECT
        trace,
        wait_reason,
        0,
        0,
        0,
        0,
        1,
        CASE WHEN runq_ns IS NULL THEN 0 ELSE 1 END,
        wait_ns,
        COALESCE(blocked_ns, 0),
        COALESCE(runq_ns, 0),
        0,
        0
    FROM switch_rows
    WHERE wait_ns IS NOT NULL
    UNION ALL
    SELECT trace, reason, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, lasted_ns
    FROM opens
    WHERE reason IS NOT NULL
),

summed AS (
    SELECT
        trace,
        reason,
        SUM(switches) AS switches,
        SUM(certain) AS certain,
        SUM(voluntary) AS voluntary,
        SUM(ran_ns) AS ran_ns,
        SUM(waits) AS waits,
        SUM(split_waits) AS split_waits,
        SUM(off_ns) AS off_ns,
        SUM(blocked_ns) AS blocked_ns,
        SUM(runq_ns) AS runq_ns,
        SUM(open_waits) AS open_waits,
        SUM(open_ns) AS open_ns
    FROM counted
    GROUP BY trace, reason
),

lengths AS (
    SELECT
        trace,
        wait_reason AS reason,
        PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY runq_ns) AS runq_p50_ns,
        PERCENTILE_DISC(0.99) WITHIN GROUP (ORDER BY runq_ns) AS runq_p99_ns,
        MAX(runq_ns) AS runq_max_ns,
        PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY wait_ns) AS off_p50_ns,
        PERCENTILE_DISC(0.99) WITHIN GROUP (ORDER BY wait_ns) AS off_p99_ns,
        MAX(wait_ns) AS off_max_ns
    FROM switch_rows
    WHERE wait_ns IS NOT NULL
    GROUP BY trace, wait_reason
)

SELECT
    summed.reason,
    reason_words.category,
    CAST(summed.switches AS BIGINT) AS switches,
    CAST(summed.switches AS DOUBLE) * 100
    / NULLIF(SUM(summed.switches) OVER (PARTITION BY summed.trace), 0) AS share_pct,
    CAST(summed.certain AS DOUBLE) * 100 / NULLIF(summed.switches, 0) AS certain_pct,
    CAST(summed.voluntary AS BIGINT) AS voluntary,
    CAST(summed.switches - summed.voluntary AS BIGINT) AS involuntary,
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
    lengths.runq_p50_ns,
    lengths.runq_p99_ns,
    lengths.runq_max_ns,
    lengths.off_p50_ns,
    lengths.off_p99_ns,
    lengths.off_max_ns,
    summed.trace
FROM summed
LEFT JOIN lengths ON summed.trace = lengths.trace AND summed.reason = lengths.reason
LEFT JOIN reason_words ON summed.reason = reason_words.reason
ORDER BY summed.trace, summed.switches DESC, reason_words.place
