-- The first layout: correct and plain. What never changes (gq.job) is apart
-- from what does (gq.state), and whatever can be large (gq.blob) is apart from
-- both. Everything lives in a schema of its own, so that the database can be
-- the application's.
--
-- Instants are nanoseconds since 1970, because a timestamptz would round them
-- to microseconds. Specs, states and events are in the binary form of package
-- gq; beside them stand only the columns that a query selects or orders by.

CREATE SCHEMA gq;

CREATE TABLE gq.migration (
    version    integer     PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- One row: the number of the last event and the newest instant written. Every
-- writing transaction locks it last, after all other rows, and keeps it until
-- it commits. So events become visible in the order of their numbers, and time
-- never runs backwards.
CREATE TABLE gq.head (
    one   boolean PRIMARY KEY DEFAULT true CHECK (one),
    event bigint  NOT NULL DEFAULT 0,
    gone  bigint  NOT NULL DEFAULT 0, -- events up to this one may have been removed
    time  bigint  NOT NULL DEFAULT 0
) WITH (fillfactor = 10);

INSERT INTO gq.head DEFAULT VALUES;

CREATE SEQUENCE gq.submission;

CREATE TABLE gq.job (
    id       uuid     PRIMARY KEY,
    type     text     NOT NULL COLLATE "C",
    requires text[]   NOT NULL COLLATE "C",
    cost     bigint   NOT NULL,
    created  bigint   NOT NULL,
    spec     bytea    NOT NULL -- without the payload
);

CREATE TABLE gq.state (
    job      uuid     PRIMARY KEY REFERENCES gq.job ON DELETE CASCADE,
    seq      bigint   NOT NULL UNIQUE,
    queue    text     NOT NULL COLLATE "C",
    status   smallint NOT NULL, -- gq.Status
    order_hi bigint   NOT NULL, -- gq.OrderKey, see signed()
    order_lo bigint   NOT NULL,
    run_at   bigint   NOT NULL,
    due      bigint,            -- gq.State.Due, NULL for never
    ended    bigint,            -- gq.State.CompletedAt, NULL while it lives
    limited  text     COLLATE "C",                     -- gq.Spec.LimitKey, NULL for none
    fair     text     NOT NULL DEFAULT '' COLLATE "C", -- gq.Spec.FairKey
    data     bytea    NOT NULL
);

-- A claim walks the jobs of a queue that are, or will be, claimable in their
-- order. 2, 3 and 6 are DELAYED, SCHEDULED and RETRYING.
CREATE INDEX state_claim ON gq.state (queue, order_hi, order_lo, job)
    WHERE status IN (2, 3, 6);

-- Sweeps, and claims that look for leases that have run out.
CREATE INDEX state_due ON gq.state (due) WHERE due IS NOT NULL;
CREATE INDEX state_held ON gq.state (queue, due) WHERE status IN (4, 5);

-- Who holds how many jobs of a limit key.
CREATE INDEX state_limited ON gq.state (queue, limited) WHERE status IN (4, 5) AND limited IS NOT NULL;

-- Retention.
CREATE INDEX state_ended ON gq.state (status, ended) WHERE ended IS NOT NULL;

CREATE TABLE gq.blob (
    job  uuid     NOT NULL REFERENCES gq.job ON DELETE CASCADE,
    part smallint NOT NULL, -- see the part constants
    data bytea    NOT NULL,
    PRIMARY KEY (job, part)
);

-- Every lease that was ever issued, since a job can be named by any of them.
CREATE TABLE gq.lease (
    id  text COLLATE "C" PRIMARY KEY,
    job uuid NOT NULL REFERENCES gq.job ON DELETE CASCADE
);

CREATE INDEX lease_job ON gq.lease (job);

-- A child that waits for a parent that lives. FAN_OUT does not wait and has no
-- row.
CREATE TABLE gq.edge (
    parent uuid     NOT NULL,
    child  uuid     NOT NULL REFERENCES gq.job ON DELETE CASCADE,
    kind   smallint NOT NULL, -- gq.DependencyKind
    PRIMARY KEY (parent, child)
);

CREATE INDEX edge_child ON gq.edge (child);

-- A parent that has ended and whose children have not all been told.
CREATE TABLE gq.ended (
    parent   uuid     PRIMARY KEY,
    seq      bigint   NOT NULL,
    status   smallint NOT NULL,
    priority smallint NOT NULL -- effective
);

-- Names are bytes here: a client's key may contain what text cannot.
CREATE TABLE gq.idempotency (
    scope       bytea  NOT NULL,
    name        bytea  NOT NULL,
    fingerprint bigint NOT NULL, -- the bits of a uint64
    job         uuid   NOT NULL REFERENCES gq.job ON DELETE CASCADE,
    expires     bigint NOT NULL,
    PRIMARY KEY (scope, name)
);

CREATE INDEX idempotency_job ON gq.idempotency (job);

CREATE TABLE gq.event (
    seq   bigint PRIMARY KEY,
    job   uuid   NOT NULL,
    queue text   NOT NULL COLLATE "C",
    time  bigint NOT NULL,
    data  bytea  NOT NULL
);

CREATE INDEX event_job ON gq.event (job, seq);

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

CREATE TABLE gq.tally (
    queue  text     NOT NULL COLLATE "C",
    status smallint NOT NULL,
    jobs   bigint   NOT NULL,
    PRIMARY KEY (queue, status)
) WITH (fillfactor = 50);

-- Capacity that queues share.
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

INSERT INTO gq.migration (version) VALUES (1);
