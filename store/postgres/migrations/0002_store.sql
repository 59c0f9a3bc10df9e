-- Layout 2, the first that was ever released.
--
-- What never changes (gq.job) is apart from what does. A job that lives has a
-- narrow row in gq.live, which is all that claims, settlements and sweeps touch;
-- one that has finished has left it for gq.done. Nothing in here is a row that
-- everyone must write: counts are appended as deltas, and the numbers of events
-- are given after the commit. Everything lives in a schema of its own, so that
-- the database can be the application's.
--
-- Instants are nanoseconds since 1970, because a timestamptz would round them
-- to microseconds. Specs, states and events are in the binary form of package
-- gq; beside them stand only the columns that a query selects or orders by.
-- Foreign keys would lock a row of gq.job for every row that names it, so there
-- are none; Collect removes what belongs to a job.

CREATE SCHEMA gq;

CREATE TABLE gq.migration (
    version    integer     PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- One row. Only those that number events, fold counts or collect lock it.
CREATE TABLE gq.head (
    one   boolean PRIMARY KEY DEFAULT true CHECK (one),
    event bigint  NOT NULL DEFAULT 0, -- the last number given
    gone  bigint  NOT NULL DEFAULT 0, -- events up to this one may have been removed
    time  bigint  NOT NULL DEFAULT 0  -- an instant that time has reached
) WITH (fillfactor = 10);

INSERT INTO gq.head DEFAULT VALUES;

CREATE SEQUENCE gq.submission CACHE 1;

CREATE TABLE gq.job (
    seq      bigint PRIMARY KEY,
    id       uuid   NOT NULL UNIQUE,
    cost     bigint NOT NULL,
    created  bigint NOT NULL,
    type     text   NOT NULL COLLATE "C",
    requires text[] NOT NULL COLLATE "C",
    spec     bytea  NOT NULL, -- without the payload
    payload  bytea
);

CREATE TABLE gq.live (
    seq      bigint   PRIMARY KEY,
    order_hi bigint   NOT NULL, -- gq.OrderKey, see signed()
    order_lo bigint   NOT NULL,
    run_at   bigint   NOT NULL,
    due      bigint,            -- gq.State.Due, NULL for never
    status   smallint NOT NULL, -- gq.Status
    queue    text     NOT NULL COLLATE "C",
    limited  text     COLLATE "C",                     -- gq.Spec.LimitKey, NULL for none
    fair     text     NOT NULL DEFAULT '' COLLATE "C", -- gq.Spec.FairKey
    data     bytea    NOT NULL  -- the segments that tell of it, then gq.State
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 1);

-- A claim walks the jobs of a queue that are, or will be, claimable in their
-- order. 2, 3 and 6 are DELAYED, SCHEDULED and RETRYING.
CREATE INDEX live_claim ON gq.live (queue, order_hi, order_lo)
    WHERE status IN (2, 3, 6);

-- Sweeps. It is on an expression so that nobody else's query is ever planned to
-- read everything that is due.
CREATE INDEX live_due ON gq.live ((due + 0), seq) WHERE due + 0 IS NOT NULL;

-- Claims that look for leases that have run out. 4 and 5 are CLAIMED and RUNNING.
CREATE INDEX live_held ON gq.live (queue, due) WHERE status IN (4, 5);

-- Who holds how many jobs of a limit key.
CREATE INDEX live_limited ON gq.live (queue, limited) WHERE status IN (4, 5) AND limited IS NOT NULL;

CREATE TABLE gq.done (
    seq    bigint   PRIMARY KEY,
    ended  bigint   NOT NULL, -- gq.State.CompletedAt
    status smallint NOT NULL,
    queue  text     NOT NULL COLLATE "C",
    fair   text     NOT NULL COLLATE "C",
    data   bytea    NOT NULL
);

-- Retention.
CREATE INDEX done_ended ON gq.done (status, ended);

CREATE TABLE gq.blob (
    seq  bigint   NOT NULL,
    part smallint NOT NULL, -- see the part constants
    data bytea    NOT NULL,
    PRIMARY KEY (seq, part)
);

-- Leases whose id does not tell the job: those that this store has not made.
CREATE TABLE gq.lease (
    id  text   COLLATE "C" PRIMARY KEY,
    seq bigint NOT NULL
);

CREATE INDEX lease_seq ON gq.lease (seq);

-- A child that waits for a parent that lives. FAN_OUT does not wait and has no
-- row.
CREATE TABLE gq.edge (
    parent bigint   NOT NULL,
    child  bigint   NOT NULL,
    kind   smallint NOT NULL, -- gq.DependencyKind
    PRIMARY KEY (parent, child)
);

CREATE INDEX edge_child ON gq.edge (child);

-- A parent that has ended and whose children have not all been told.
CREATE TABLE gq.ended (
    parent   bigint   PRIMARY KEY,
    status   smallint NOT NULL,
    priority smallint NOT NULL -- effective
);

-- Names are bytes here: a client's key may contain what text cannot.
CREATE TABLE gq.idempotency (
    scope       bytea  NOT NULL,
    name        bytea  NOT NULL,
    fingerprint bigint NOT NULL, -- the bits of a uint64
    job         uuid   NOT NULL,
    seq         bigint NOT NULL,
    expires     bigint NOT NULL,
    PRIMARY KEY (scope, name)
);

CREATE INDEX idempotency_seq ON gq.idempotency (seq);

-- The events of one commit, or of a part of one. The id is taken while the rows
-- of its jobs are locked, so for any one job the ids are in the order of what
-- happened. seq is the number of its first event and comes after the commit, so
-- that none ever appears behind one that was read.
CREATE SEQUENCE gq.segment_id;

CREATE TABLE gq.segment (
    id     bigint PRIMARY KEY,
    seq    bigint,
    time   bigint  NOT NULL,
    events integer NOT NULL,
    jobs   integer NOT NULL, -- that it tells of and that are still kept
    token  uuid    NOT NULL  -- tells this commit from any that might have had the id
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 1);

CREATE INDEX segment_fresh ON gq.segment (id) WHERE seq IS NULL;
CREATE INDEX segment_seq ON gq.segment (seq) WHERE seq IS NOT NULL;

CREATE TABLE gq.log (
    id   bigint PRIMARY KEY,
    data bytea  NOT NULL
);

ALTER TABLE gq.log ALTER data SET STORAGE EXTERNAL;

-- A row is also the lock under which the limits of its queue are checked. A
-- queue that nobody has configured has no config and may have no row.
CREATE TABLE gq.queue (
    name   text     COLLATE "C" PRIMARY KEY,
    config jsonb,
    due    bigint   NOT NULL DEFAULT 0,             -- when the next claim is due under the rate, 0 for none
    turns  bigint[] NOT NULL DEFAULT '{0,0,0,0,0}'  -- being served, by level
);

-- The newest turn of each key of a fair queue, as long as it is not over.
CREATE TABLE gq.turn (
    queue text     NOT NULL COLLATE "C",
    level smallint NOT NULL, -- gq.Priority
    key   text     NOT NULL COLLATE "C",
    turn  bigint   NOT NULL,
    PRIMARY KEY (queue, level, key)
);

-- How many jobs stand in each status: what was folded, and what has been added
-- since. Writers only ever append to gq.delta.
CREATE TABLE gq.tally (
    queue  text     NOT NULL COLLATE "C",
    status smallint NOT NULL,
    jobs   bigint   NOT NULL,
    PRIMARY KEY (queue, status)
) WITH (fillfactor = 50);

CREATE TABLE gq.delta (
    queue  text     NOT NULL COLLATE "C",
    status smallint NOT NULL,
    jobs   bigint   NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 1);

-- Capacity that queues share. A row is the lock under which it is given.
CREATE TABLE gq.pool (
    name     text    COLLATE "C" PRIMARY KEY,
    capacity bigint  NOT NULL,
    at_start boolean NOT NULL, -- only running jobs count, not those that are held
    updated  bigint  NOT NULL
);

-- Small records beside the jobs. Versions come from one sequence, so that a
-- document that is made again has one that nobody has seen.
CREATE TABLE gq.doc (
    kind    text   NOT NULL COLLATE "C",
    name    text   NOT NULL COLLATE "C",
    version bigint NOT NULL,
    data    bytea  NOT NULL,
    PRIMARY KEY (kind, name)
);

CREATE SEQUENCE gq.doc_version;

INSERT INTO gq.migration (version) VALUES (2);
