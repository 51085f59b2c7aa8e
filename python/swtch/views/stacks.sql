-- A row: a distinct stack. Numbers of user and kernel stacks are counted apart: join by both.
--
-- trace      VARCHAR    the trace, by the path that was given
-- stack      UINTEGER   its number
-- kind       VARCHAR    kernel or user
-- pid        UINTEGER   the process whose addresses these are; null for the kernel
-- depth      BIGINT     how many frames it has
-- functions  VARCHAR[]  its functions, innermost first; the address (0x…) where the function is not known
-- modules    VARCHAR[]  executable, library or kernel module of each; null where not known
WITH place AS (
    SELECT trace, stack, kind, pid, frames, unnest(range(1, len(frames) + 1)) AS nth
    FROM stored.stack
)

SELECT
    place.trace,
    place.stack,
    place.kind,
    any_value(place.pid) AS pid,
    count(*) AS depth,
    list(coalesce(frame.symbol, '0x' || lower(hex(frame.address))) ORDER BY place.nth) AS functions,
    list(frame.module ORDER BY place.nth) AS modules
FROM place
LEFT JOIN stored.frame AS frame
    ON place.trace = frame.trace AND place.frames[place.nth] = frame.frame
GROUP BY place.trace, place.stack, place.kind
