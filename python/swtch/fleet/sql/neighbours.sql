-- Which cgroups had the CPU while tasks of which others could have run, and how long did these wait?
--
-- A row: two cgroups of a host. The fifty pairs that cost most come first and alone. All waiting in run queues counts,
-- whatever it followed: a task that sleeps, wakes and queues behind a busy one is waiting for that one as much as one
-- that was preempted. Segments that older packages added do not say who had the CPU, and are left out.
--
-- host            name of the host
-- neighbour       cgroup whose tasks had the CPU
-- victim          cgroup whose tasks waited in its run queue meanwhile
-- waits           in how many waits
-- waited_ns       how long, in all of them
-- mean_ns         of them, for each wait
-- share_pct       share of the time for which the victim waited for CPUs at all
-- taken           how often the neighbour took the CPU from a task of the victim that could have run on
--
-- and, where the paths of the cgroups tell them, neighbour_container_id, neighbour_pod_uid, victim_container_id,
-- victim_pod_uid.
WITH waited AS (
    SELECT host, cgroup, SUM(runq_ns) AS runq_ns
    FROM contention
    GROUP BY host, cgroup
),

pairs AS (
    SELECT
        host,
        neighbour,
        cgroup AS victim,
        SUM(waits) AS waits,
        SUM(runq_ns) AS waited_ns,
        MAX(neighbour_container_id) AS neighbour_container_id,
        MAX(neighbour_pod_uid) AS neighbour_pod_uid,
        MAX(container_id) AS victim_container_id,
        MAX(pod_uid) AS victim_pod_uid
    FROM contention
    WHERE kind = 'cgroup' AND neighbour <> cgroup
    GROUP BY host, neighbour, cgroup
),

-- Quotas (throttle) and moves to another CPU (migrate) are nobody's taking.
preempted AS (
    SELECT host, next_cgroup, cgroup, COUNT(*) AS taken
    FROM switches
    WHERE reason IN ('slice', 'wakeup', 'class') AND next_cgroup <> cgroup
    GROUP BY host, next_cgroup, cgroup
)

SELECT
    pairs.host AS host,
    pairs.neighbour AS neighbour,
    pairs.victim AS victim,
    CAST(pairs.waits AS BIGINT) AS waits,
    CAST(pairs.waited_ns AS BIGINT) AS waited_ns,
    CAST(pairs.waited_ns AS DOUBLE) / pairs.waits AS mean_ns,
    CAST(pairs.waited_ns AS DOUBLE) * 100 / NULLIF(waited.runq_ns, 0) AS share_pct,
    CAST(COALESCE(preempted.taken, 0) AS BIGINT) AS taken,
    pairs.neighbour_container_id AS neighbour_container_id,
    pairs.neighbour_pod_uid AS neighbour_pod_uid,
    pairs.victim_container_id AS victim_container_id,
    pairs.victim_pod_uid AS victim_pod_uid
FROM pairs
INNER JOIN waited ON pairs.host = waited.host AND pairs.victim = waited.cgroup
LEFT JOIN preempted
    ON
        pairs.host = preempted.host
        AND pairs.neighbour = preempted.next_cgroup
        AND pairs.victim = preempted.cgroup
ORDER BY pairs.waited_ns DESC, pairs.host, pairs.neighbour, pairs.victim
LIMIT 50
