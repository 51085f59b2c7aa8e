-- Which cgroups take the CPU from which others, and what did that cost these?
--
-- A row: two cgroups of a host. The fifty pairs that cost most come first and alone. Quotas (throttle) and
-- moves to another CPU (migrate) are nobody's taking, and are left out.
--
-- host            name of the host
-- neighbour       cgroup whose task took the CPU
-- victim          cgroup whose task had it, and could have run on
-- taken           how often
-- per_s           of them, in a second of recording
-- waited_ns       how long the victims then waited until they ran again
-- mean_ns         of them, for each time
-- share_pct       share of the time for which the victim waited for CPUs at all
WITH recorded AS (
    SELECT host, SUM(duration_ns) AS recorded_ns
    FROM segments
    GROUP BY host
),

waited AS (
    SELECT host, cgroup, SUM(COALESCE(runq_ns, 0)) AS runq_ns
    FROM switches
    GROUP BY host, cgroup
),

pairs AS (
    SELECT
        host,
        next_cgroup AS neighbour,
        cgroup AS victim,
        COUNT(*) AS taken,
        SUM(COALESCE(after_runq_ns, 0)) AS waited_ns
    FROM switches
    WHERE reason IN ('slice', 'wakeup', 'class') AND next_cgroup <> cgroup
    GROUP BY host, next_cgroup, cgroup
)

SELECT
    pairs.host AS host,
    pairs.neighbour,
    pairs.victim,
    CAST(pairs.taken AS BIGINT) AS taken,
    CAST(pairs.taken AS DOUBLE) * 1e9 / NULLIF(recorded.recorded_ns, 0) AS per_s,
    CAST(pairs.waited_ns AS BIGINT) AS waited_ns,
    CAST(pairs.waited_ns AS DOUBLE) / pairs.taken AS mean_ns,
    CAST(pairs.waited_ns AS DOUBLE) * 100 / NULLIF(waited.runq_ns, 0) AS share_pct
FROM pairs
INNER JOIN recorded ON pairs.host = recorded.host
INNER JOIN waited ON pairs.host = waited.host AND pairs.victim = waited.cgroup
ORDER BY pairs.waited_ns DESC, pairs.host, pairs.neighbour, pairs.victim
LIMIT 50
