-- No length of time is negative.
SELECT *
FROM switch
WHERE least(ran_ns, off_ns, runq_ns, moved_ns, irq_ns, stolen_ns, need_resched_delay_ns) < 0
