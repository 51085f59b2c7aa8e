-- A row: a process of the trace.
--
-- trace       VARCHAR   the trace, by the path that was given
-- process     BIGINT    its number within the trace; ids of processes are used again
-- pid         UINTEGER  process id
-- comm        VARCHAR   last name of its leader; if that was not seen, the program of its command line, or
--                       the name of the first thread
-- command     VARCHAR   its command line, as it was read last; null where none was
-- parent_pid  UINTEGER  process id of its parent
-- is_kthread  BOOLEAN   whether its threads are kernel threads
-- in_scope    BOOLEAN   whether switches of any of its threads are counted
-- threads     BIGINT    how many threads of it were seen
-- first_ns    BIGINT    when it was first seen, on the trace clock
WITH process AS (
    SELECT
        trace,
        process,
        any_value(pid) AS pid,
        any_value(process_comm) AS comm,
        arg_min(parent_pid, first_ns) AS parent_pid,
        bool_or(is_kthread) AS is_kthread,
        bool_or(in_scope) AS in_scope,
        count(*) AS threads,
        min(first_ns) AS first_ns
    FROM tasks
    GROUP BY trace, process
),

-- A command line belongs to the process that had its id at that moment.
command AS (
    SELECT process.trace, process.process, arg_max(read.command, (read.ts_ns, read.file_row)) AS command
    FROM stored.command AS read
    ASOF JOIN process
        ON read.trace = process.trace AND read.pid = process.pid AND read.ts_ns >= process.first_ns
    GROUP BY process.trace, process.process
)

SELECT
    process.trace,
    process.process,
    process.pid,
    process.comm,
    command.command,
    process.parent_pid,
    process.is_kthread,
    process.in_scope,
    process.threads,
    process.first_ns
FROM process
LEFT JOIN command USING (trace, process)
