-- The numbers of reports that are missing. An observer numbers its reports without gaps, also over restarts. Only one
-- that lost its state begins again at 1, which begins another sequence. daemon/report/src/arrivals explains the rules.
DROP VIEW IF EXISTS missing;
CREATE VIEW missing AS
WITH spans AS ( -- Consecutive reports of a run.
    SELECT observer_id, boot_id, min(seq) AS first, max(seq) AS last, max(window_start) AS start, max(named) AS named,
           min(CASE WHEN previous IS NULL THEN seq END) AS first_of_all
    FROM (SELECT observer_id, boot_id, seq, window_start, previous,
                 CASE WHEN previous NOT LIKE observer_id || '/' || boot_id || '/%'
                      THEN trim(rtrim(substr(previous, length(observer_id) + 2), '0123456789'), '/') END AS named,
                 seq - row_number() OVER (PARTITION BY observer_id, boot_id ORDER BY seq) AS span
          FROM reports) AS reports
    GROUP BY observer_id, boot_id, span
), known AS (
    SELECT observer_id, boot_id, first, last, start, named, first_of_all FROM spans
    UNION ALL
    SELECT observer_id, boot_id, first_seq, last_seq, NULL, NULL, NULL FROM tombstones
), runs AS (
    SELECT observer_id, boot_id, min(first) AS first, max(last) AS last, max(start) AS latest,
           min(first) = min(first_of_all) AS is_start
    FROM known GROUP BY observer_id, boot_id
), ordered AS ( -- Runs by time. Numbers that are not above those before begin another sequence.
    SELECT *, sum(CASE WHEN before IS NOT NULL AND (is_start OR first <= before) THEN 1 ELSE 0 END)
                  OVER (PARTITION BY observer_id ORDER BY latest, boot_id) AS sequence
    FROM (SELECT *, lag(last) OVER (PARTITION BY observer_id ORDER BY latest, boot_id) AS before
          FROM runs WHERE latest IS NOT NULL) AS runs
), fitting AS ( -- Where the numbers of a run are free of which only tombstones came.
    SELECT silent.observer_id, silent.boot_id, silent.first, sequence,
           max(CASE WHEN others.first <= silent.last AND others.last >= silent.first THEN 1 ELSE 0 END) AS is_taken,
           max(CASE WHEN others.last < silent.first THEN others.last ELSE -1 END) AS nearest
    FROM runs AS silent LEFT JOIN ordered AS others ON others.observer_id = silent.observer_id
    WHERE silent.latest IS NULL
    GROUP BY silent.observer_id, silent.boot_id, silent.first, sequence
), placed AS ( -- With the last number of each run of which reports came.
    SELECT observer_id, boot_id, first, is_start, sequence, last AS reported FROM ordered
    UNION ALL
    SELECT observer_id, boot_id, first, NULL, CASE WHEN is_taken = 0 THEN coalesce(sequence, 0) ELSE highest + 1 END, -1
    FROM (SELECT *, max(sequence) OVER (PARTITION BY observer_id, boot_id) AS highest,
                 row_number() OVER (PARTITION BY observer_id, boot_id
                                    ORDER BY is_taken, nearest DESC, sequence DESC) AS place
          FROM fitting) AS fitting
    WHERE place = 1
), numbered AS (
    SELECT known.observer_id, coalesce(named, known.boot_id) AS boot_id, sequence, known.first,
           coalesce(placed.is_start, false) AND known.first = placed.first AS is_start,
           placed.reported < 0 AND known.first = placed.first AS begins_silent,
           max(placed.reported) OVER (PARTITION BY known.observer_id, sequence) AS reported,
           coalesce(followed.last, 0) AS followed,
           coalesce(max(known.last) OVER (PARTITION BY known.observer_id, sequence
                                          ORDER BY known.first, known.start IS NULL, known.last, known.boot_id
                                          ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
    FROM known
    JOIN placed ON placed.observer_id = known.observer_id AND placed.boot_id = known.boot_id
    LEFT JOIN runs AS followed ON followed.observer_id = known.observer_id AND followed.boot_id = named
), holes AS (
    SELECT observer_id, boot_id, sequence, first, is_start, begins_silent, reported,
           CASE WHEN before < followed THEN followed ELSE before END AS before
    FROM numbered
), told AS ( -- Of tombstones that overlap, the first one explains.
    SELECT observer_id, boot_id, reason, last_seq AS last,
           CASE WHEN first_seq <= before THEN before + 1 ELSE first_seq END AS first
    FROM (SELECT *, coalesce(max(last_seq) OVER (PARTITION BY observer_id, boot_id
                                                 ORDER BY first_seq, last_seq, reason
                                                 ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), -1) AS before
          FROM tombstones) AS tombstones
), dropped AS (
    SELECT observer_id, boot_id, first, last, reason,
           last - first + 1 - (SELECT count(DISTINCT seq) FROM reports
                               WHERE reports.observer_id = told.observer_id AND reports.boot_id = told.boot_id
                                   AND seq BETWEEN told.first AND told.last) AS reports
    FROM told WHERE first <= last
)
SELECT DISTINCT observer_id, boot_id, before + 1 AS first, first - 1 AS last, first - 1 - before AS reports,
       CASE WHEN before = 0 AND (sequence = 0 OR reported < 0) THEN 'before_first' ELSE 'unexplained' END AS status, NULL AS reason
FROM holes
WHERE before < first - 1 AND NOT is_start AND NOT (begins_silent AND before > 0 AND reported < first)
UNION ALL
SELECT observer_id, boot_id, first, last, reports, 'dropped', reason FROM dropped WHERE reports > 0;
