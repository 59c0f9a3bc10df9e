-- Layout 6: a job that is held is in another table than one that is not.
--
-- A claim used to change a row in gq.live, which took an entry in each of its
-- indexes. Now it deletes the row from gq.ready, which touches no index, and
-- inserts one into gq.held, which has two. Both together are gq.live.

ALTER TABLE gq.live RENAME TO ready;
ALTER INDEX gq.live_pkey RENAME TO ready_pkey;
ALTER INDEX gq.live_claim RENAME TO ready_claim;
ALTER INDEX gq.live_due RENAME TO ready_due;
DROP INDEX gq.live_held, gq.live_limited;

-- Jobs that are CLAIMED or RUNNING.
CREATE TABLE gq.held (
    seq     bigint   PRIMARY KEY,
    due     bigint,            -- gq.State.Due, which a held job always has
    status  smallint NOT NULL, -- gq.Status
    queue   text     NOT NULL COLLATE "C",
    limited text     COLLATE "C",
    fair    text     NOT NULL COLLATE "C",
    data    bytea    NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 1);

WITH moved AS (
    DELETE FROM gq.ready WHERE status IN (4, 5) RETURNING seq, due, status, queue, limited, fair, data
)
INSERT INTO gq.held SELECT * FROM moved;

-- What claims select by, beside the order in which they take: to look up the job of
-- each would cost more than the rest of a claim.
ALTER TABLE gq.ready
    ADD cost     bigint,
    ADD type     text COLLATE "C",
    ADD requires text[] COLLATE "C"; -- NULL for nothing
UPDATE gq.ready AS s
SET cost = j.cost, type = j.type, requires = nullif(j.requires, '{}')
FROM gq.job AS j
WHERE j.seq = s.seq;
ALTER TABLE gq.ready ALTER cost SET NOT NULL, ALTER type SET NOT NULL;

-- Leases that have run out, for the claims of their queue and, queue by queue, for
-- the sweeps; and what is held of a queue.
CREATE INDEX held_due ON gq.held (queue, due);

-- Who holds how many jobs of a limit key.
CREATE INDEX held_limited ON gq.held (queue, limited) WHERE limited IS NOT NULL;

CREATE VIEW gq.live AS
SELECT seq, due, status, queue, limited, fair, data FROM gq.ready
UNION ALL
SELECT seq, due, status, queue, limited, fair, data FROM gq.held;

-- The views that named the table.
CREATE OR REPLACE VIEW gq.job_now AS
SELECT l.seq, l.queue, l.data FROM gq.live AS l
UNION ALL
SELECT s.seq, s.queue, s.data
FROM gq.done AS s
WHERE NOT EXISTS (SELECT FROM gq.horizon AS h WHERE h.status = s.status AND (h.ended, h.seq) >= (s.ended, s.seq));

CREATE OR REPLACE VIEW gq.provider_quotas AS
SELECT
    p.name AS provider_id, coalesce(h.leases, 0) AS leases_active,
    jsonb_build_object(
        'AI', coalesce(CASE WHEN e.same THEN (b.books ->> 'ai_units_used')::bigint END, 0),
        'QUANTUM', coalesce(CASE WHEN e.same THEN (b.books ->> 'quantum_units_used')::bigint END, 0)
    ) AS units_epoch_used,
    jsonb_build_object('epoch_id', w.epoch, 'cooldown_until', coalesce(b.books -> 'cooldown_until', '{}')) AS windows
FROM gq.doc AS p
CROSS JOIN gq.matching_now AS w
LEFT JOIN LATERAL (
    SELECT gq.read_json(d.data) AS books FROM gq.doc AS d WHERE d.kind = 'matching.books' AND d.name = p.name
) AS b ON true
CROSS JOIN LATERAL (SELECT (b.books ->> 'epoch_id')::bigint = w.epoch AS same) AS e
LEFT JOIN (
    SELECT s.worker, count(*) AS leases
    FROM gq.held AS r
    CROSS JOIN LATERAL gq.read_state(r.data) AS s
    WHERE r.queue = 'matching'
    GROUP BY s.worker
) AS h ON h.worker = p.name
WHERE p.kind = 'matching.provider';

INSERT INTO gq.migration (version) VALUES (6);
