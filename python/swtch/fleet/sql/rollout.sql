-- What got worse from one release to another?
--
-- A row: a figure. Each host that has recordings of both releases is compared with itself, so hosts may differ
-- from each other as they like. The interval is that of the mean change over hosts (Student's t over logarithms
-- of ratios), 95 % sure for all five figures together (Bonferroni: 99 % for each). It needs six hosts.
-- Load that changed between the two, for all hosts at once, looks like the release.
--
-- $before  the release before
-- $after   the release after
--
-- figure      what is compared; more is worse in each
-- hosts       how many hosts were compared
-- before      mean of the hosts before
-- after       mean of the hosts after
-- change_pct  mean change (geometric)
-- low_pct     lower end of its interval; null with fewer than six hosts
-- high_pct    upper end
-- verdict     worse, better, no sure change, or too few hosts
WITH recorded AS (
    SELECT segment, host, release, duration_ns
    FROM segments
    WHERE release IN ($before, $after)
),

summed AS (
    SELECT
        segment,
        COUNT(*) AS switches,
        SUM(CASE WHEN is_voluntary THEN 0 ELSE 1 END) AS involuntary,
        COUNT(runq_ns) AS waits,
        SUM(runq_ns) AS runq_ns,
        COUNT(need_resched_delay_ns) AS delays,
        SUM(need_resched_delay_ns) AS delay_ns
    FROM switches
    GROUP BY segment
),

by_host AS (
    SELECT
        recorded.host,
        recorded.release,
        CAST(SUM(recorded.duration_ns) AS DOUBLE) / 1e9 AS seconds,
        CAST(SUM(COALESCE(summed.switches, 0)) AS DOUBLE) AS switches,
        CAST(SUM(COALESCE(summed.involuntary, 0)) AS DOUBLE) AS involuntary,
        CAST(SUM(COALESCE(summed.waits, 0)) AS DOUBLE) AS waits,
        CAST(SUM(COALESCE(summed.runq_ns, 0)) AS DOUBLE) AS runq_ns,
        CAST(SUM(COALESCE(summed.delays, 0)) AS DOUBLE) AS delays,
        CAST(SUM(COALESCE(summed.delay_ns, 0)) AS DOUBLE) AS delay_ns
    FROM recorded
    LEFT JOIN summed ON recorded.segment = summed.segment
    GROUP BY recorded.host, recorded.release
),

figures AS (
    SELECT host, release, 1 AS place, 'switches per second' AS figure, switches / NULLIF(seconds, 0) AS amount
    FROM by_host
    UNION ALL
    SELECT host, release, 2, 'involuntary switches per second', involuntary / NULLIF(seconds, 0)
    FROM by_host
    UNION ALL
    SELECT host, release, 3, 'run-queue ns per second', runq_ns / NULLIF(seconds, 0)
    FROM by_host
    UNION ALL
    SELECT host, release, 4, 'mean run-queue wait, ns', runq_ns / NULLIF(waits, 0)
    FROM by_host
    UNION ALL
    SELECT host, release, 5, 'mean delay of reschedules, ns', delay_ns / NULLIF(delays, 0)
    FROM by_host
),

paired AS (
    SELECT
        old.place,
        old.figure,
        old.amount AS before_amount,
        new.amount AS after_amount,
        LN(new.amount / old.amount) AS log_ratio
    FROM figures AS old
    INNER JOIN figures AS new ON old.host = new.host AND old.place = new.place
    WHERE old.release = $before AND new.release = $after AND old.amount > 0 AND new.amount > 0
),

summary AS (
    SELECT
        place,
        figure,
        COUNT(*) AS hosts,
        COUNT(*) - 1 AS df,
        AVG(before_amount) AS before_amount,
        AVG(after_amount) AS after_amount,
        AVG(log_ratio) AS log_ratio,
        STDDEV_SAMP(log_ratio) / SQRT(COUNT(*)) AS error
    FROM paired
    GROUP BY place, figure
),

-- The 99.5 % quantile of Student's t by the series of Cornish and Fisher: within 1 % from df = 5 on.
judged AS (
    SELECT
        *,
        CASE
            WHEN df >= 5
                THEN
                    error
                    * (2.57583e0 + 4.91659e0 / df + 8.83410e0 / (df * df) + 12.14480e0 / (df * df * df))
        END AS half
    FROM summary
)

SELECT
    figure,
    CAST(hosts AS BIGINT) AS hosts,
    before_amount AS before,
    after_amount AS after,
    (EXP(log_ratio) - 1) * 100 AS change_pct,
    (EXP(log_ratio - half) - 1) * 100 AS low_pct,
    (EXP(log_ratio + half) - 1) * 100 AS high_pct,
    CASE
        WHEN half IS NULL THEN 'too few hosts'
        WHEN log_ratio - half > 0 THEN 'worse'
        WHEN log_ratio + half < 0 THEN 'better'
        ELSE 'no sure change'
    END AS verdict
FROM judged
ORDER BY place
