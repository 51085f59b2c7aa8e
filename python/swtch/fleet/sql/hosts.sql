-- Which hosts pay most for switches?
--
-- A row: a host. The fifty that pay most come first and alone.
--
-- host             name of the host
-- kernel           its kernel, the last by name if it had several
-- instance_type    what it is; null where not given
-- cpus             its CPUs
-- switches         switches away from its tasks
-- per_s            of them, in a second of recording
-- involuntary_pct  share of them that the kernel counts as involuntary
-- runq_ns          time for which tasks were runnable and had no CPU
-- direct_ns        switches times the host's price of one; null where no price was given
-- paid_pct         CPU time lost on average, in percent of its CPUs: waiting for one, and for the price of
--                  switches. Many that wait make this more than 100.
WITH recorded AS (
    SELECT
        host,
        MAX(kernel) AS kernel,
        MAX(instance_type) AS instance_type,
        MAX(cpus) AS cpus,
        SUM(duration_ns) AS recorded_ns,
        AVG(price_ns) AS price_ns
    FROM segments
    GROUP BY host
),

summed AS (
    SELECT
        host,
        COUNT(*) AS switches,
        SUM(CASE WHEN is_voluntary THEN 0 ELSE 1 END) AS involuntary,
        SUM(COALESCE(runq_ns, 0)) AS runq_ns
    FROM switches
    GROUP BY host
)

SELECT
    summed.host,
    recorded.kernel,
    recorded.instance_type,
    recorded.cpus,
    CAST(summed.switches AS BIGINT) AS switches,
    CAST(summed.switches AS DOUBLE) * 1e9 / NULLIF(recorded.recorded_ns, 0) AS per_s,
    CAST(summed.involuntary AS DOUBLE) * 100 / summed.switches AS involuntary_pct,
    CAST(summed.runq_ns AS BIGINT) AS runq_ns,
    CAST(summed.switches AS DOUBLE) * recorded.price_ns AS direct_ns,
    (
        CAST(summed.runq_ns AS DOUBLE)
        + CAST(summed.switches AS DOUBLE) * COALESCE(recorded.price_ns, 0)
    ) * 100 / NULLIF(CAST(recorded.recorded_ns AS DOUBLE) * recorded.cpus, 0) AS paid_pct
FROM summed
INNER JOIN recorded ON summed.host = recorded.host
ORDER BY paid_pct DESC, summed.host
LIMIT 50
