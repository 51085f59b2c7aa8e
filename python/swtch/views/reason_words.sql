-- A row: a reason of the closed list, in its order.
--
-- place     INTEGER  its place in the list: on a tie the first is shown
-- reason    VARCHAR  the word
-- category  VARCHAR  the kind of reason
SELECT place, reason, category
FROM stored.reason
