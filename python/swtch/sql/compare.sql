-- Rates of two traces side by side, by reason. It judges nothing: whether a difference is more than chance is
-- for `swtch diff BEFORE.swtch -- AFTER.swtch` to say, which takes several recordings of each.
--
-- A row: a reason that occurs in either trace. A second is one of the recording, over all CPUs together.
--
-- $before  VARCHAR  the one trace, by its path
-- $after   VARCHAR  the other
--
-- reason                     VARCHAR  why threads left their CPUs
-- before_switches_per_s      DOUBLE   switches a second
-- after_switches_per_s       DOUBLE
-- before_blocked_ns_per_s    DOUBLE   blocked time of the waits that followed, ns a second
-- after_blocked_ns_per_s     DOUBLE
-- before_runq_ns_per_s       DOUBLE   run-queue time of the waits that followed, ns a second
-- after_runq_ns_per_s        DOUBLE
WITH counted AS (
    SELECT trace, reason, 1 AS switches, 0 AS blocked_ns, 0 AS runq_ns
    FROM switch_rows
    UNION ALL
    SELECT trace, wait_reason, 0, COALESCE(blocked_ns, 0), COALESCE(runq_ns, 0)
    FROM switch_rows
    WHERE wait_ns IS NOT NULL
),

rates AS (
    SELECT
        c.trace,
        c.reason,
        SUM(c.switches) / (NULLIF(m.duration_ns, 0) / CAST(1000000000 AS DOUBLE)) AS switches,
        SUM(c.blocked_ns) / (NULLIF(m.duration_ns, 0) / CAST(1000000000 AS DOUBLE)) AS blocked_ns,
        SUM(c.runq_ns) / (NULLIF(m.duration_ns, 0) / CAST(1000000000 AS DOUBLE)) AS runq_ns
    FROM counted AS c
    INNER JOIN meta AS m ON c.trace = m.trace
    GROUP BY c.trace, c.reason, m.duration_ns
)

SELECT
    rates.reason,
    SUM(CASE WHEN rates.trace = $before THEN rates.switches ELSE 0 END) AS before_switches_per_s,
    SUM(CASE WHEN rates.trace = $after THEN rates.switches ELSE 0 END) AS after_switches_per_s,
    SUM(CASE WHEN rates.trace = $before THEN rates.blocked_ns ELSE 0 END)
        AS before_blocked_ns_per_s,
    SUM(CASE WHEN rates.trace = $after THEN rates.blocked_ns ELSE 0 END) AS after_blocked_ns_per_s,
    SUM(CASE WHEN rates.trace = $before THEN rates.runq_ns ELSE 0 END) AS before_runq_ns_per_s,
    SUM(CASE WHEN rates.trace = $after THEN rates.runq_ns ELSE 0 END) AS after_runq_ns_per_s
FROM rates
LEFT JOIN reason_words ON rates.reason = reason_words.reason
WHERE rates.trace IN ($before, $after)
GROUP BY rates.reason, reason_words.place
ORDER BY before_switches_per_s DESC, reason_words.place
