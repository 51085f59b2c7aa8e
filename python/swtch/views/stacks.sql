-- A row: a distinct stack. Numbers of user and kernel stacks are counted apart: join by both.
--
-- trace      VARCHAR    the trace, by the path that was given
-- stack      UINTEGER   its number
-- kind       VARCHAR    kernel or user
-- pid        UINTEGER   the process whose addresses these are; null for the kernel
-- ended      VARCHAR    where its frames end, outwards: start, guessed, cut, …; null for the kernel and in older traces
-- depth      BIGINT     how many frames it has
-- functions  VARCHAR[]  its functions, innermost first; where one is not known, the address in its file (0x…)
-- modules    VARCHAR[]  executable, library or kernel module of each; null where not known
WITH place AS (
    SELECT trace, stack, kind, pid, ended, frames, unnest(range(1, len(frames) + 1)) AS nth
    FROM stored.stack
)

SELECT
    place.trace,
    place.stack,
    place.kind,
    any_value(place.pid) AS pid,
    any_value(place.ended) AS ended,
    count(*) AS depth,
    list(coalesce(frame.symbol, '0x' || lower(hex(coalesce(frame.file_address, frame.address)))) ORDER BY place.nth) AS functions,
    list(frame.module ORDER BY place.nth) AS modules
FROM place
LEFT JOIN stored.frame AS frame
    ON place.trace = frame.trace AND place.frames[place.nth] = frame.frame
GROUP BY place.trace, place.stack, place.kind
