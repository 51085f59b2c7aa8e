-- A row: a wait that ended in a run, with what is known of the switch that began it. Tasks are numbers here;
-- the view `waits` has their names too, which takes longer.
--
-- trace               VARCHAR   the trace, by the path that was given
-- task                UINTEGER  who waited (tasks.task)
-- began_ns            BIGINT    when it left the CPU, on the trace clock; null if not known
-- woken_ns            BIGINT    when it became runnable; null if not known
-- resumed_ns          BIGINT    when it ran again; null if not known
-- wait_ns             BIGINT    length of the wait: blocked time plus run-queue time
-- off_ns              BIGINT    the same; null for the first wait of a new task, which had never left a CPU
-- blocked_ns          BIGINT    until it was woken; null if the wakeup was not recorded
-- runq_ns             BIGINT    runnable, but not running; null if the wakeup was not recorded
-- reason              VARCHAR   why the wait began; 'unknown' when that switch was not recorded
-- is_begin_recorded   BOOLEAN   whether that switch was recorded; if not, what follows of it is null
-- syscall             UINTEGER  number of the system call in which it waited
-- object_kind         VARCHAR   what it waited for: futex, or a word of `wait_object` (docs/SCHEMA.md)
-- object              VARCHAR   address of the futex word in its process, or inode number of the file, as 0x…
-- cpu                 USMALLINT the CPU on which it ran afterwards
-- wake_cpu            USMALLINT the CPU whose run queue it was put on when woken
-- waker               UINTEGER  the task that made it runnable, or that was interrupted by what did; 0 is idle
-- waker_kind          VARCHAR   what made it runnable: none, task, timer, interrupt, softirq, sender
-- kernel_stack, user_stack                UINTEGER  where it waited (stacks.stack)
-- waker_kernel_stack, waker_user_stack    UINTEGER  where its waker was (stacks.stack)
-- holder_stack        UINTEGER  where the thread was that held Python's global lock meanwhile (stacks.stack)
SELECT
    trace,
    task,
    began_ns,
    woken_ns,
    resumed_ns,
    wait_ns,
    off_ns,
    blocked_ns,
    runq_ns,
    wait_reason AS reason,
    off_reason IS NOT NULL AS is_begin_recorded,
    CASE WHEN off_reason IS NOT NULL THEN before_syscall END AS syscall,
    CASE WHEN off_reason IS NOT NULL THEN before_object_kind END AS object_kind,
    CASE WHEN off_reason IS NOT NULL THEN before_object END AS object,
    cpu,
    wake_cpu,
    waker,
    waker_kind,
    off_kernel_stack AS kernel_stack,
    off_user_stack AS user_stack,
    waker_kernel_stack,
    waker_user_stack,
    off_holder_stack AS holder_stack
FROM (
    SELECT
        *,
        -- A wait begins with the row before, of the same task.
        lag(syscall) OVER of_task AS before_syscall,
        lag(object_kind) OVER of_task AS before_object_kind,
        lag(object) OVER of_task AS before_object
    FROM switch_rows
    WINDOW of_task AS (PARTITION BY trace, task ORDER BY file_row)
)
WHERE wait_ns IS NOT NULL
