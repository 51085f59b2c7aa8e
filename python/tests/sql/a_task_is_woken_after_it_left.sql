-- A task is made runnable after it left the CPU: what it waited in a run queue is at most its time off the CPU.
SELECT *
FROM switch
WHERE runq_ns > off_ns
