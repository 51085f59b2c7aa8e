-- Which cgroups of which hosts pay most for switches?
--
-- A row: a cgroup of a host. The fifty that pay most come first and alone.
--
-- host              name of the host
-- cgroup            path of the cgroup
-- switches          switches away from its tasks
-- per_s             of them, in a second of recording
-- involuntary_pct   share of them that the kernel counts as involuntary
-- runq_ns           time for which its tasks were runnable and had no CPU
-- direct_ns         switches times the host's price of one; null where no price was given
-- paid_cpus         CPUs that it lost on average: waiting for one, and for the price of switches. Many that wait
--                   make this more than there are.
WITH recorded AS (
    SELECT host, SUM(duration_ns) AS recorded_ns, AVG(price_ns) AS price_ns
    FROM segments
    GROUP BY host
),

summed AS (
    SELECT
        host,
        cgroup,
        COUNT(*) AS switches,
        SUM(CASE WHEN is_voluntary THEN 0 ELSE 1 END) AS involuntary,
        SUM(COALESCE(runq_ns, 0)) AS runq_ns
    FROM switches
    GROUP BY host, cgroup
)

SELECT
    summed.host,
    summed.cgroup,
    CAST(summed.switches AS BIGINT) AS switches,
    CAST(summed.switches AS DOUBLE) * 1e9 / NULLIF(recorded.recorded_ns, 0) AS per_s,
    CAST(summed.involuntary AS DOUBLE) * 100 / summed.switches AS involuntary_pct,
    CAST(summed.runq_ns AS BIGINT) AS runq_ns,
    CAST(summed.switches AS DOUBLE) * recorded.price_ns AS direct_ns,
    (
        CAST(summed.runq_ns AS DOUBLE)
        + CAST(summed.switches AS DOUBLE) * COALESCE(recorded.price_ns, 0)
    ) / NULLIF(recorded.recorded_ns, 0) AS paid_cpus
FROM summed
INNER JOIN recorded ON summed.host = recorded.host
ORDER BY paid_cpus DESC, summed.host, summed.cgroup
LIMIT 50
