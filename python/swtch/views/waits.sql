-- A row: a wait that ended in a run, with the names that its tasks had at that moment.
--
-- …                                  all columns of the view `wait_rows`
-- comm, tid, pid                     who waited: name, thread id, process id
-- waker_comm, waker_tid, waker_pid   who ended the wait
SELECT
    w.*,
    own.comm,
    own.tid,
    own.pid,
    woke.comm AS waker_comm,
    woke.tid AS waker_tid,
    woke.pid AS waker_pid
FROM wait_rows AS w
LEFT JOIN identities AS own
    ON
        w.trace = own.trace
        AND w.task = own.task
        AND coalesce(w.woken_ns, w.resumed_ns, 0) >= own.from_ns
        AND coalesce(w.woken_ns, w.resumed_ns, 0) < own.until_ns
LEFT JOIN identities AS woke
    ON
        w.trace = woke.trace
        AND w.waker = woke.task
        AND coalesce(w.woken_ns, w.resumed_ns, 0) >= woke.from_ns
        AND coalesce(w.woken_ns, w.resumed_ns, 0) < woke.until_ns
