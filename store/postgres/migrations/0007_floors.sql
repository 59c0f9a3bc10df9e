-- Layout 7: what is dead is not walked over, also while somebody holds a snapshot
-- open and nothing dead can be removed.
--
-- Two means. Rows of which only the newest counts are written with a growing
-- number and read from the upper end of their index, where nothing is dead. And
-- whoever deals with all rows of a kind notes the oldest transaction that was
-- under way (xmin): whatever it did not see was written by that one or a later one.

-- What was the row of gq.head. A round of numbering leaves a row and takes the one
-- before away, so that everyone sees exactly one.
ALTER TABLE gq.head RENAME TO head_6;

CREATE TABLE gq.round (
    number   bigint PRIMARY KEY DEFAULT 0,
    event    bigint NOT NULL DEFAULT 0,   -- the last number given
    gone     bigint NOT NULL DEFAULT 0,   -- events up to this one may have been removed
    time     bigint NOT NULL DEFAULT 0,   -- an instant that time has reached
    numbered xid8   NOT NULL DEFAULT '0', -- all segments of older transactions have numbers
    folded   xid8   NOT NULL DEFAULT '0'  -- all counts of older transactions are in gq.tally
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 1);

INSERT INTO gq.round (event, gone, time) SELECT event, gone, time FROM gq.head_6;

CREATE VIEW gq.head AS
SELECT number, event, gone, time, numbered, folded FROM gq.round ORDER BY number DESC LIMIT 1;

CREATE OR REPLACE VIEW gq.matching_now AS
SELECT p.policy, t.now, coalesce((b.beacon ->> 'epoch_id')::bigint, t.now / 1000000000 / (p.policy -> 'seed' ->> 'epoch_secs')::bigint) AS epoch
FROM (
    SELECT greatest(h.time, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000) AS now FROM gq.head AS h
) AS t
LEFT JOIN (
    SELECT gq.read_json(d.data) AS policy
    FROM gq.doc AS d
    WHERE d.kind = 'matching' AND d.name IN ('settings', 'configured')
    ORDER BY d.name DESC
    LIMIT 1
) AS p ON true
LEFT JOIN (
    SELECT gq.read_json(d.data) AS beacon FROM gq.doc AS d WHERE d.kind = 'matching' AND d.name = 'beacon'
) AS b ON true;

DROP TABLE gq.head_6;

-- Segments without numbers, from the transaction on that gq.round names.
ALTER TABLE gq.segment ADD xid xid8 NOT NULL DEFAULT '0';
ALTER TABLE gq.segment ALTER xid SET DEFAULT pg_current_xact_id();
DROP INDEX gq.segment_fresh;
CREATE INDEX segment_fresh ON gq.segment (xid) WHERE seq IS NULL;

-- In which order they get them: as they were written, while everything that they tell
-- of was locked. Their ids may have been taken long before.
CREATE SEQUENCE gq.segment_place;
ALTER TABLE gq.segment ADD place bigint NOT NULL DEFAULT 0;
ALTER TABLE gq.segment ALTER place SET DEFAULT nextval('gq.segment_place');

-- Counts that were not folded, likewise.
ALTER TABLE gq.delta ADD xid xid8 NOT NULL DEFAULT '0';
ALTER TABLE gq.delta ALTER xid SET DEFAULT pg_current_xact_id();
CREATE INDEX delta_xid ON gq.delta (xid);

-- Where claims begin. Lanes 1 to 5 of a queue are its claimable jobs of each
-- priority in their order, a position being (order_hi, order_lo); lane 0 is its held
-- jobs by when they are due, a position being (due, 0), and lane 6 of the queue '' is
-- likewise all jobs that are not held. No living row stands below "at", except those
-- that gq.early tells of.
CREATE TABLE gq.floor (
    queue   text     NOT NULL COLLATE "C",
    lane    smallint NOT NULL,
    version bigint   NOT NULL,
    at      bigint[] NOT NULL,
    next    bigint[] NOT NULL, -- where it goes: whoever writes below tells of it
    marked  xid8,              -- transactions from this one on know of next; NULL for not known yet
    seen    xid8     NOT NULL, -- what older transactions told is in "at"
    PRIMARY KEY (queue, lane, version)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 1);

-- Positions below next at which rows were written.
CREATE TABLE gq.early (
    queue text     NOT NULL COLLATE "C",
    lane  smallint NOT NULL,
    at    bigint[] NOT NULL,
    xid   xid8     NOT NULL DEFAULT pg_current_xact_id()
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 1);

CREATE INDEX early_xid ON gq.early (queue, lane, xid);

INSERT INTO gq.migration (version) VALUES (7);
