-- A row: a trace, and the facts about it that meta.json has.
--
-- trace           VARCHAR   the path that was given
-- hostname        VARCHAR   the machine
-- kernel_release  VARCHAR   its kernel
-- machine         VARCHAR   its architecture
-- cpus            BIGINT    how many CPUs it had
-- scope           VARCHAR   what was recorded, in words
-- command         VARCHAR   the recorded command; null without one
-- backend         VARCHAR   by what the kernel told of switches: ebpf, or perf (which tells less)
-- state           VARCHAR   finished, or stopped_early
-- stop_reason     VARCHAR   why it ended early; null otherwise
-- start_ns        BIGINT    start of the recording, on the trace clock
-- end_ns          BIGINT    its end
-- duration_ns     BIGINT    how long it is; up to the last switch where the end is not told
-- lost            BIGINT    records that were produced and could not be kept
-- untraced        BIGINT    switches that the kernel made and did not report to tracing: in no row
-- format_version  BIGINT    version of the format
-- rules_version   BIGINT    version of the rules that chose the reasons
-- swtch_version   VARCHAR   the program that recorded
SELECT
    m.* EXCLUDE (counted_lost, unnamed, storage_failed),
    CASE
        WHEN end_ns > 0 AND end_ns >= start_ns THEN end_ns - start_ns
        ELSE (SELECT max(ts_ns) FROM stored.switch AS s WHERE s.trace = m.trace) - start_ns
    END AS duration_ns,
    greatest(
        coalesce((SELECT sum(lost) FROM stored.gap AS g WHERE g.trace = m.trace), 0)::BIGINT,
        counted_lost
    ) + unnamed + storage_failed AS lost
FROM stored.meta AS m
