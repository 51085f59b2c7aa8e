-- The time on the run queue to which a waiting task was moved is at most its time in run queues.
SELECT *
FROM switch
WHERE moved_ns > runq_ns
