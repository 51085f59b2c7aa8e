-- A row: a task (thread) of the trace, under the last name that it had. Reports group by this.
--
-- trace         VARCHAR   the trace, by the path that was given
-- task          UINTEGER  the task: unique within the trace, unlike its thread id
-- tid           UINTEGER  thread id
-- pid           UINTEGER  process id
-- comm          VARCHAR   its last name; bytes that are no UTF-8 are U+FFFD
-- process       BIGINT    number of its process (processes.process): ids of processes are used again
-- process_comm  VARCHAR   last name of the leader of its process; if that was not seen, the program of its
--                         command line, or the name of the first thread
-- parent_pid    UINTEGER  process id of the parent
-- is_kthread    BOOLEAN   whether it is a kernel thread
-- in_scope      BOOLEAN   whether its switches are counted; others are only in the trace because they
--                         had the CPU meanwhile
-- first_ns      BIGINT    when it was first seen, on the trace clock
-- ended_ns      BIGINT    when it ended; null if it did not
WITH last_rows AS (
    SELECT *
    FROM stored.task
    WHERE task <> 0
    QUALIFY row_number() OVER (PARTITION BY trace, task ORDER BY ts_ns DESC, file_row DESC) = 1
),

lives AS (
    SELECT
        trace,
        task,
        bool_or(in_scope) AS in_scope,
        min(ts_ns) AS first_ns,
        max(CASE WHEN kind = 'exit' THEN ts_ns END) AS ended_ns
    FROM stored.task
    GROUP BY trace, task
),

-- A process is a pid and the moment at which its leader started, because pids are used again.
leaders AS (
    SELECT DISTINCT trace, pid, started_ns
    FROM last_rows
    WHERE pid = tid
),

-- The leader that started last, but no later than the thread; otherwise the first one.
started AS (
    SELECT
        thread.trace,
        thread.task,
        coalesce(
            max(CASE WHEN leader.started_ns <= thread.started_ns THEN leader.started_ns END),
            min(leader.started_ns),
            0
        ) AS process_started_ns
    FROM last_rows AS thread
    LEFT JOIN leaders AS leader ON thread.trace = leader.trace AND thread.pid = leader.pid
    GROUP BY thread.trace, thread.task
),

named AS (
    SELECT
        trace,
        task,
        last_rows.tid,
        last_rows.pid,
        last_rows.comm,
        dense_rank() OVER (
            PARTITION BY trace ORDER BY last_rows.pid, started.process_started_ns
        ) AS process,
        -- The leader's name; of several (after exec in another thread) that of the newest. Until a
        -- leader is seen, the first thread's.
        first_value(last_rows.comm) OVER (
            PARTITION BY trace, last_rows.pid, started.process_started_ns
            ORDER BY
                last_rows.pid = last_rows.tid DESC,
                CASE WHEN last_rows.pid = last_rows.tid THEN -task::BIGINT ELSE task::BIGINT END
        ) AS process_comm,
        last_rows.parent_pid,
        last_rows.is_kthread,
        lives.in_scope,
        lives.first_ns,
        lives.ended_ns
    FROM last_rows
    INNER JOIN lives USING (trace, task)
    INNER JOIN started USING (trace, task)
),

-- Processes of which no leader was seen: it only waits, as Java's does.
leaderless AS (
    SELECT trace, process, any_value(pid) AS pid, min(first_ns) AS first_ns
    FROM named
    GROUP BY trace, process
    HAVING NOT bool_or(pid = tid)
),

-- The program of a command line, as long as the kernel's names are.
program AS (
    SELECT
        leaderless.trace,
        leaderless.process,
        arg_max(
            left(rtrim(regexp_replace(regexp_extract(read.command, '\S+'), '^.*/', ''), ':'), 15),
            (read.ts_ns, read.file_row)
        ) AS name
    FROM stored.command AS read
    ASOF JOIN leaderless
        ON
            read.trace = leaderless.trace
            AND read.pid = leaderless.pid
            AND read.ts_ns >= leaderless.first_ns
    GROUP BY leaderless.trace, leaderless.process
)

SELECT
    named.trace,
    named.task,
    named.tid,
    named.pid,
    named.comm,
    named.process,
    coalesce(nullif(program.name, ''), named.process_comm) AS process_comm,
    named.parent_pid,
    named.is_kthread,
    named.in_scope,
    named.first_ns,
    named.ended_ns
FROM named
LEFT JOIN program USING (trace, process)
