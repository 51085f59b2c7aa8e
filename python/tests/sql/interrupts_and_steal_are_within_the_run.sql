-- What interrupts and the hypervisor took out of a run is at most the run.
SELECT *
FROM switch
WHERE irq_ns + stolen_ns > ran_ns
