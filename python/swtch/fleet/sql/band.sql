-- On which hosts and days did the 99th percentile of run-queue waits leave its band?
--
-- A row: a host and day outside the band of the host's days. The band goes from the lower quartile to the upper
-- one, three times their distance further on both sides (Tukey's outer fences), and at least 25 % to each side
-- of the middle day. Hosts with fewer than five days, and days with fewer than 1,000 waits, are not judged;
-- neither are segments whose clock was wrong (`clock`), because their day may be.
--
-- Waits are rounded down to three digits, so that the percentile is at most 1 % too low.
--
-- host        name of the host
-- date        the day (UTC)
-- waits       waits of that day
-- p99_ns      their 99th percentile
-- band_low_ns, band_high_ns   the band
-- times       the percentile as a multiple of the middle day's
WITH rounded AS (
    SELECT
        segment,
        CASE
            WHEN runq_ns < 1000 THEN runq_ns
            WHEN runq_ns < 10000 THEN runq_ns - MOD(runq_ns, 10)
            WHEN runq_ns < 100000 THEN runq_ns - MOD(runq_ns, 100)
            WHEN runq_ns < 1000000 THEN runq_ns - MOD(runq_ns, 1000)
            WHEN runq_ns < 10000000 THEN runq_ns - MOD(runq_ns, 10000)
            WHEN runq_ns < 100000000 THEN runq_ns - MOD(runq_ns, 100000)
            WHEN runq_ns < 1000000000 THEN runq_ns - MOD(runq_ns, 1000000)
            WHEN runq_ns < 10000000000 THEN runq_ns - MOD(runq_ns, 10000000)
            ELSE runq_ns - MOD(runq_ns, 100000000)
        END AS wait_ns
    FROM switches
    WHERE runq_ns IS NOT NULL
),

by_segment AS (
    SELECT segment, wait_ns, COUNT(*) AS waits
    FROM rounded
    GROUP BY segment, wait_ns
),

by_day AS (
    SELECT s.host, s.date, w.wait_ns, SUM(w.waits) AS waits
    FROM by_segment AS w
    INNER JOIN segments AS s ON w.segment = s.segment
    WHERE s.clock IS NULL
    GROUP BY s.host, s.date, w.wait_ns
),

running AS (
    SELECT
        host,
        date,
        wait_ns,
        SUM(waits) OVER (
            PARTITION BY host, date ORDER BY wait_ns
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS up_to,
        SUM(waits) OVER (PARTITION BY host, date) AS waits
    FROM by_day
),

days AS (
    SELECT host, date, MIN(wait_ns) AS p99_ns, MAX(waits) AS waits
    FROM running
    WHERE up_to * 100 >= waits * 99
    GROUP BY host, date
    HAVING MAX(waits) >= 1000
),

ranked AS (
    SELECT
        host,
        p99_ns,
        ROW_NUMBER() OVER (PARTITION BY host ORDER BY p99_ns, date) AS nth,
        COUNT(*) OVER (PARTITION BY host) AS days
    FROM days
),

-- The quartile of n days is the first one that a quarter of them, rounded up, does not exceed.
quartiles AS (
    SELECT
        host,
        MIN(CASE WHEN nth * 4 >= days THEN p99_ns END) AS q1_ns,
        MIN(CASE WHEN nth * 2 >= days THEN p99_ns END) AS q2_ns,
        MIN(CASE WHEN nth * 4 >= days * 3 THEN p99_ns END) AS q3_ns
    FROM ranked
    WHERE days >= 5
    GROUP BY host
),

bands AS (
    SELECT
        host,
        q2_ns,
        CASE
            WHEN q1_ns - 3 * (q3_ns - q1_ns) < q2_ns * 0.75e0 THEN q1_ns - 3 * (q3_ns - q1_ns)
            ELSE q2_ns * 0.75e0
        END AS low_ns,
        CASE
            WHEN q3_ns + 3 * (q3_ns - q1_ns) > q2_ns * 1.25e0 THEN q3_ns + 3 * (q3_ns - q1_ns)
            ELSE q2_ns * 1.25e0
        END AS high_ns
    FROM quartiles
)

SELECT
    days.host,
    days.date,
    CAST(days.waits AS BIGINT) AS waits,
    days.p99_ns,
    CAST(bands.low_ns AS DOUBLE) AS band_low_ns,
    CAST(bands.high_ns AS DOUBLE) AS band_high_ns,
    CAST(days.p99_ns AS DOUBLE) / NULLIF(bands.q2_ns, 0) AS times
FROM days
INNER JOIN bands ON days.host = bands.host
WHERE days.p99_ns < bands.low_ns OR days.p99_ns > bands.high_ns
ORDER BY days.host, days.date
