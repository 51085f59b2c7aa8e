-- A row: a stretch of one CPU in which records were lost. Counts and sums around it are too small.
--
-- trace     VARCHAR    the trace, by the path that was given
-- cpu       USMALLINT  the CPU
-- start_ns  BIGINT     time of the first record that was lost, on the trace clock
-- end_ns    BIGINT     time of the last record that was lost
-- lost      BIGINT     how many records
-- level     VARCHAR    whose switches they were: os the kernel's, user those of a user-mode scheduler
SELECT trace, cpu, start_ns, end_ns, lost, coalesce(level, 'os') AS level
FROM stored.gap
