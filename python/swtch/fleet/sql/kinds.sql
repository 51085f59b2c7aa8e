-- Which kernel or instance type has dearer switches?
--
-- A row: hosts with the same kernel and instance type. The price is what `swtch cost` measured on each host
-- (a hand-over between two threads on one CPU). The interval is that of a mean over hosts (Student's t, 95 %),
-- so it says what other hosts of this kind would cost on average; it needs four hosts with a price.
--
-- kernel         the kernel
-- instance_type  the instance type; null where not given
-- hosts          how many hosts
-- priced_hosts   of them, with a price
-- price_ns       mean price of a switch
-- low_ns         lower end of its interval; null with fewer than four hosts
-- high_ns        upper end
-- dearer_pct     how much the price is above that of the cheapest kind
-- runq_mean_ns   mean run-queue wait, which depends on the load as well
-- delay_mean_ns  mean time from a request to reschedule to the switch
WITH recorded AS (
    SELECT segment, host, kernel, instance_type, price_ns
    FROM segments
),

summed AS (
    SELECT
        segment,
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
        recorded.kernel,
        recorded.instance_type,
        AVG(recorded.price_ns) AS price_ns,
        SUM(summed.waits) AS waits,
        SUM(summed.runq_ns) AS runq_ns,
        SUM(summed.delays) AS delays,
        SUM(summed.delay_ns) AS delay_ns
    FROM recorded
    LEFT JOIN summed ON recorded.segment = summed.segment
    GROUP BY recorded.host, recorded.kernel, recorded.instance_type
),

by_kind AS (
    SELECT
        kernel,
        instance_type,
        COUNT(*) AS hosts,
        COUNT(price_ns) AS priced_hosts,
        COUNT(price_ns) - 1 AS df,
        AVG(price_ns) AS price_ns,
        STDDEV_SAMP(price_ns) AS spread_ns,
        CAST(SUM(runq_ns) AS DOUBLE) / NULLIF(SUM(waits), 0) AS runq_mean_ns,
        CAST(SUM(delay_ns) AS DOUBLE) / NULLIF(SUM(delays), 0) AS delay_mean_ns
    FROM by_host
    GROUP BY kernel, instance_type
),

-- The 97.5 % quantile of Student's t by the series of Cornish and Fisher: within 1 % from df = 3 on.
judged AS (
    SELECT
        *,
        CASE
            WHEN df >= 3
                THEN
                    spread_ns / SQRT(priced_hosts)
                    * (1.95996e0 + 2.37227e0 / df + 2.82250e0 / (df * df) + 2.55585e0 / (df * df * df))
        END AS half_ns
    FROM by_kind
)

SELECT
    kernel,
    instance_type,
    CAST(hosts AS BIGINT) AS hosts,
    CAST(priced_hosts AS BIGINT) AS priced_hosts,
    price_ns,
    price_ns - half_ns AS low_ns,
    price_ns + half_ns AS high_ns,
    (price_ns / MIN(price_ns) OVER () - 1) * 100 AS dearer_pct,
    runq_mean_ns,
    delay_mean_ns
FROM judged
ORDER BY price_ns DESC NULLS LAST, kernel, instance_type
