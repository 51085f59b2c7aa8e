-- A row: a switch that reports count: the kernel switched away from a task in the scope of the recording.
-- Tasks are numbers here; the view `switches` has their names too, which takes longer.
--
-- trace          VARCHAR   the trace, by the path that was given
-- file_row       BIGINT    place in the table, which is in order of time
-- …                        all columns of the table `switch` (docs/SCHEMA.md)
-- is_voluntary   BOOLEAN   whether the kernel counts the switch as voluntary (nvcsw)
-- wait_ns        BIGINT    length of the wait before the run that ended: off-CPU time, or run-queue time for a
--                          task that had never left a CPU; null if not known
-- blocked_ns     BIGINT    of that, until it was woken; null if the wakeup was not recorded
-- wait_reason    VARCHAR   why that wait began; 'unknown' when that switch was not recorded; null without a wait
-- began_ns       BIGINT    when that wait began, on the trace clock; null if not known
-- woken_ns       BIGINT    when the task became runnable; null if not known
-- resumed_ns     BIGINT    when the run began; null if not known
-- object_kind    VARCHAR   what it waits for after this switch: futex, or a word of `wait_object`; null when it
--                          has no address and no inode number, and when it does not wait
-- object         VARCHAR   address of the futex word in its process, or inode number of the file, as 0x…
SELECT
    s.* EXCLUDE (futex_word) REPLACE (coalesce(s.level, 'os') AS level),
    s.evidence_bits & 1 = 1 AS is_voluntary,
    coalesce(s.off_ns, s.runq_ns) AS wait_ns,
    CASE
        WHEN s.runq_ns IS NOT NULL THEN greatest(coalesce(s.off_ns, s.runq_ns) - s.runq_ns, 0)
    END AS blocked_ns,
    CASE
        WHEN coalesce(s.off_ns, s.runq_ns) IS NOT NULL THEN coalesce(s.off_reason, 'unknown')
    END AS wait_reason,
    s.ts_ns - s.ran_ns - coalesce(s.off_ns, s.runq_ns) AS began_ns,
    s.ts_ns - s.ran_ns - s.runq_ns AS woken_ns,
    s.ts_ns - s.ran_ns AS resumed_ns,
    CASE
        WHEN s.category IN ('preemption', 'yield', 'exit') THEN NULL
        WHEN s.reason <> 'futex' AND s.wait_key IS NOT NULL THEN s.wait_object
        WHEN s.reason = 'futex' AND futex_word IS NOT NULL THEN 'futex'
    END AS object_kind,
    CASE
        WHEN s.category IN ('preemption', 'yield', 'exit') THEN NULL
        WHEN s.reason <> 'futex' THEN '0x' || lower(hex(s.wait_key))
        ELSE '0x' || lower(hex(futex_word))
    END AS object
FROM (
    SELECT
        *,
        -- The word is the call's first argument, but for the calls that take a list of words
        -- (futex_waitv 449, futex_requeue 456) and for 32-bit programs, whose registers hold
        -- other arguments (bit 8 of the evidence).
        coalesce(
            wait_key,
            CASE
                WHEN syscall NOT IN (449, 456) AND evidence_bits & 256 = 0 THEN nullif(arg0, 0)
            END
        ) AS futex_word
    FROM stored.switch
) AS s
LEFT JOIN tasks AS t ON s.trace = t.trace AND s.task = t.task
-- A task without a row in `task` (the last second of a killed recording) counts; idle does not.
WHERE coalesce(s.level, 'os') = 'os' AND s.task <> 0 AND coalesce(t.in_scope, true)
