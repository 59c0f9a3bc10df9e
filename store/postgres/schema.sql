-- The tables of a queue in PostgreSQL.
--
-- Everything is in one schema, so that an application can share its database with the queue; only
-- views.sql has two more. A store opened with ?gq_schema=name has the same tables in the schema of
-- that name.
--
-- How a job is stored. A job is one row in exactly one of gq.ready (waiting), gq.held
-- (claimed or running) and gq.done (finished). A claim moves a row from one small table to
-- another, so the history does not slow it down. Jobs that were claimed or that ended
-- together may share a row of gq.held or gq.done: see pack.go. Events are in gq.segment and gq.log: all
-- events of one commit share a row.
--
-- Contention. There is no row that every transaction writes: counts are appended to gq.delta
-- and added up later, and events get their numbers after the commit.
--
-- Retention. gq.done, gq.blob, gq.segment, gq.log, gq.report and gq.report_event are
-- partitioned by day, and old partitions are dropped. Only a purge deletes single rows. The
-- sequence numbers of jobs and segments have the day since 1970 in their upper bits and a
-- 32-bit counter in the lower ones, so a number determines its partition.
--
-- Conventions. Instants are nanoseconds since 1970; a timestamptz would round them to
-- microseconds. Specs, states and events are in the binary format of package store/codec.
-- Other columns exist only if a query selects or orders by them. There are no foreign keys:
-- each would lock the row of a job for every row that references it.

CREATE SCHEMA IF NOT EXISTS gq;

CREATE TABLE gq.migration (
    version    integer     PRIMARY KEY,
    oldest     integer,    -- programs that know this version or a later one can use the tables; NULL is version
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Jobs

CREATE SEQUENCE gq.submission CACHE 1;

-- The id of a job is computed from its sequence number, 58 random bits that its row keeps,
-- and this key. So no index of ids is needed.
CREATE TABLE gq.id_key (
    secret bytea NOT NULL
);

INSERT INTO gq.id_key VALUES (decode(replace(gen_random_uuid()::text, '-', ''), 'hex'));

-- Ids that another store made or a caller chose. A row is deleted when its job expires.
CREATE TABLE gq.foreign_id (
    id  uuid   PRIMARY KEY,
    seq bigint NOT NULL
);

CREATE INDEX foreign_id_seq ON gq.foreign_id (seq);

-- Jobs without a lease: PENDING, DELAYED, SCHEDULED and RETRYING.
CREATE TABLE gq.ready (
    seq      bigint   PRIMARY KEY,                     -- the day, then the order of submission
    order_hi bigint   NOT NULL,                        -- its position in its queue, with order_lo
    order_lo bigint   NOT NULL,
    run_at   bigint   NOT NULL,                        -- not claimable before
    due      bigint,                                   -- when time changes it; NULL for never
    created  bigint   NOT NULL,
    cost     bigint   NOT NULL,                        -- capacity that it uses
    status   smallint NOT NULL,
    far      boolean  NOT NULL,                        -- it is due after gq.near.until
    aside    bigint,                                   -- its class if its key has used up its rate and claims skip it; see keys_aside.go
    queue    text     NOT NULL COLLATE "C",
    limited  text     COLLATE "C",                     -- limit key; NULL for none
    fair     text     NOT NULL DEFAULT '' COLLATE "C", -- fair key
    type     text     NOT NULL COLLATE "C",
    requires text[]   COLLATE "C",                     -- capabilities that a worker must offer; NULL for none
    body     bytea    NOT NULL,                        -- its spec, and its payload unless that is large
    data     bytea    NOT NULL                         -- the segments with its events, then its state
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 1);

-- A claim reads the jobs of a queue that are or will be claimable, in order. 2, 3 and 6 are
-- DELAYED, SCHEDULED and RETRYING.
CREATE INDEX ready_claim ON gq.ready (queue, order_hi, order_lo) WHERE status IN (2, 3, 6) AND aside IS NULL;

-- The jobs of a limit key that claims skip until the rate of the key allows more.
CREATE INDEX ready_aside ON gq.ready (queue, limited, aside, order_hi, order_lo) WHERE aside IS NOT NULL;

-- For sweeps. It is on an expression so that the planner uses it for no other query. It has no
-- jobs that are due in days: most end before, and their entries would be a fifth of the cost
-- of inserting them.
CREATE INDEX ready_due ON gq.ready ((due + 0), seq) WHERE due + 0 IS NOT NULL AND NOT far;

-- No job that is due up to this time is far. Twice a day it is set to a day later, and the
-- jobs that are due until then are added to ready_due: see near.go.
CREATE TABLE gq.near (
    until bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);

INSERT INTO gq.near DEFAULT VALUES;

-- Jobs that are CLAIMED or RUNNING.
CREATE TABLE gq.held (
    seq     bigint   PRIMARY KEY,      -- the lowest number of its jobs
    members bigint,                    -- its jobs, a bit for each of 64 numbers; NULL for one job
    due     bigint,                    -- when the lease, run or lifetime of each ends; never NULL for a held job
    created bigint   NOT NULL,         -- of the first job
    cost    bigint   NOT NULL,         -- of each job
    status  smallint NOT NULL,
    queue   text     NOT NULL COLLATE "C",
    limited text     COLLATE "C",
    fair    text     NOT NULL COLLATE "C",
    body    bytea    NOT NULL,
    data    bytea    NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 1, toast_tuple_target = 8160);

ALTER TABLE gq.held ALTER body SET STORAGE EXTERNAL, ALTER data SET STORAGE EXTERNAL;

-- For expired leases and for the held jobs of a queue.
CREATE INDEX held_due ON gq.held (queue, due);

-- For counting the held jobs of a limit key.
CREATE INDEX held_limited ON gq.held (queue, limited) WHERE limited IS NOT NULL;

CREATE VIEW gq.live AS
SELECT seq, NULL::bigint AS members, due, created, status, queue, limited, fair, body, data FROM gq.ready
UNION ALL
SELECT seq, members, due, created, status, queue, limited, fair, body, data FROM gq.held;

-- Jobs that have finished.
CREATE TABLE gq.done (
    seq     bigint   NOT NULL, -- members and created are as in gq.held
    members bigint,
    ended   bigint   NOT NULL, -- by which retention orders; later than the job's if that is to be kept for longer
    created bigint   NOT NULL,
    status  smallint NOT NULL,
    queue   text     NOT NULL COLLATE "C",
    fair    text     NOT NULL COLLATE "C",
    body    bytea    NOT NULL,
    data    bytea    NOT NULL,
    PRIMARY KEY (seq)
) PARTITION BY RANGE (seq);

ALTER TABLE gq.done ALTER body SET STORAGE EXTERNAL, ALTER data SET STORAGE EXTERNAL;

-- Retention reads the jobs that ended in one status in the order in which they ended. The
-- number is an expression so that the planner uses the index for no other query.
CREATE INDEX done_ended ON gq.done (status, ended, (seq + 0));

-- How far retention has come, by status: jobs up to and including this one have expired.
CREATE TABLE gq.horizon (
    status smallint PRIMARY KEY,
    ended  bigint   NOT NULL,
    seq    bigint   NOT NULL
) WITH (fillfactor = 10);

-- Finished jobs that are to be removed before the horizon of their status reaches them. Jobs
-- that are kept for longer have a later gq.done.ended instead.
CREATE TABLE gq.kept (
    until bigint NOT NULL,
    seq   bigint NOT NULL,
    PRIMARY KEY (until, seq)
);

-- Results, checkpoints, large payloads and other data that is not part of a job's state.
CREATE TABLE gq.blob (
    seq  bigint   NOT NULL,
    part smallint NOT NULL,
    data bytea    NOT NULL,
    PRIMARY KEY (seq, part)
) PARTITION BY RANGE (seq);

-- Leases that this store did not grant: their ids do not contain the number of the job.
CREATE TABLE gq.lease (
    id  text   COLLATE "C" PRIMARY KEY,
    seq bigint NOT NULL
);

CREATE INDEX lease_seq ON gq.lease (seq);

-- Keys of idempotent and unique jobs. Names are bytes: a client's key may contain bytes that
-- text cannot hold. A scope that begins with a zero byte has a queue's order keys, each with the
-- job that was submitted last.
CREATE TABLE gq.idempotency (
    scope       bytea  NOT NULL,
    name        bytea  NOT NULL,
    fingerprint bigint NOT NULL, -- the bits of a uint64
    job         uuid   NOT NULL,
    seq         bigint NOT NULL,
    expires     bigint NOT NULL, -- the largest bigint if only the status of the job frees the key
    rule        smallint NOT NULL, -- how long a unique job holds the key; 0 for an idempotent one, -1 if job is not its final id
    PRIMARY KEY (scope, name)
);

CREATE INDEX idempotency_seq ON gq.idempotency (seq);

-- The inbox

-- Submissions of transactions that only write a row: those of a *sql.Tx and of gq.submit. A
-- node takes them in after the commit: in one transaction it deletes the row and inserts the
-- jobs, or moves the row to gq.refused. So the rules of a submission are not repeated here.
CREATE TABLE gq.inbox (
    place   bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- the order in which they are taken in
    ids     uuid[]      NOT NULL,                                 -- of its jobs, and last that of their workflow
    written timestamptz NOT NULL DEFAULT clock_timestamp(),
    jobs    bytea,                                                -- their specs, see inbox_write.go; or
    request jsonb,                                                -- one job as the HTTP API has it
    docs    jsonb                                                 -- new documents that belong to the jobs
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 1);

-- Submissions that were refused, until an operator retries or discards them.
CREATE TABLE gq.refused (
    place   bigint      PRIMARY KEY, -- as in gq.inbox, and so are the next five
    ids     uuid[]      NOT NULL,
    written timestamptz NOT NULL,
    jobs    bytea,
    request jsonb,
    docs    jsonb,
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    problem text        NOT NULL
);

-- Ids that submitters know of jobs that were not inserted, because an older job had the key.
CREATE TABLE gq.duplicate (
    id  uuid   PRIMARY KEY,
    job uuid   NOT NULL, -- the older job
    seq bigint NOT NULL  -- its number
);

CREATE INDEX duplicate_seq ON gq.duplicate (seq);

-- Tells all nodes. PostgreSQL sends equal notifications of one transaction once.
CREATE FUNCTION gq.announce() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_catalog.pg_notify('gq_news', '{"i":true}');
    RETURN NULL;
END $$;

CREATE TRIGGER announce AFTER INSERT ON gq.inbox FOR EACH STATEMENT EXECUTE FUNCTION gq.announce();

-- Submits a job from SQL and returns its id; the job exists once the transaction has committed
-- and a node has taken it in. Options are further fields of a submission, as the HTTP API has
-- them; the parameters override them. What is invalid is refused when it is taken in. A caller
-- needs USAGE on the schema and EXECUTE on the function, and no right on any table. The names in
-- the body are resolved here, so the caller's search_path does not matter.
CREATE FUNCTION gq.submit(
    type     text,
    payload  jsonb       DEFAULT NULL,
    queue    text        DEFAULT NULL,
    delay    interval    DEFAULT NULL,
    run_at   timestamptz DEFAULT NULL,
    key      text        DEFAULT NULL,
    priority text        DEFAULT NULL,
    options  jsonb       DEFAULT '{}'
) RETURNS uuid
LANGUAGE sql VOLATILE SECURITY DEFINER
BEGIN ATOMIC
    INSERT INTO gq.inbox (ids, request)
    VALUES (
        ARRAY [gen_random_uuid()],
        coalesce(options, '{}')
            || CASE WHEN payload IS NULL THEN '{}' ELSE jsonb_build_object('payload', payload) END
            || jsonb_strip_nulls(jsonb_build_object(
                'type', type, 'queue', queue, 'delay', extract(epoch FROM delay) || 's', 'run_at', run_at,
                'idempotency_key', key, 'priority', priority))
    )
    RETURNING ids[1];
END;

REVOKE EXECUTE ON FUNCTION gq.submit FROM PUBLIC;

-- Dependencies

-- A child that waits for a parent. A FAN_OUT dependency does not wait and has no row.
CREATE TABLE gq.edge (
    parent bigint   NOT NULL,
    child  bigint   NOT NULL,
    kind   smallint NOT NULL,
    PRIMARY KEY (parent, child, kind)
);

CREATE INDEX edge_child ON gq.edge (child);

-- Parents that have ended and have children that still have to be updated.
CREATE TABLE gq.ended (
    parent   bigint   PRIMARY KEY,
    status   smallint NOT NULL,
    priority smallint NOT NULL -- effective
);

-- Events

-- A segment has the events of one commit, or of a part of one. Its id is taken while the rows
-- of its jobs are locked, so the segments of any one job are in the order of its events. seq
-- is the number of its first event. It is assigned after the commit, so that no event ever
-- appears before one that was already read.
CREATE SEQUENCE gq.segment_id;
CREATE SEQUENCE gq.segment_place;

CREATE TABLE gq.segment (
    id     bigint  NOT NULL,
    seq    bigint,
    time   bigint  NOT NULL,
    events integer NOT NULL,
    token  uuid    NOT NULL, -- distinguishes this commit from another with the same id
    xid    xid8    NOT NULL DEFAULT pg_current_xact_id(),
    place  bigint  NOT NULL DEFAULT nextval('gq.segment_place'), -- order in which segments are numbered
    PRIMARY KEY (id)
) PARTITION BY RANGE (id);

-- Segments without numbers, read from the transaction gq.round.numbered on.
CREATE INDEX segment_fresh ON gq.segment (xid) WHERE seq IS NULL;
CREATE INDEX segment_seq ON gq.segment (seq) WHERE seq IS NOT NULL;

CREATE TABLE gq.log (
    id   bigint   NOT NULL,
    data bytea    NOT NULL,
    jobs bigint[],          -- numbers of its jobs, if data was written before they were known
    PRIMARY KEY (id)
) PARTITION BY RANGE (id);

ALTER TABLE gq.log ALTER data SET STORAGE EXTERNAL;

-- How far numbering and counting have come. Each round inserts a row and deletes the previous
-- one, so every snapshot has exactly one. It is read from the upper end of the index, which
-- has no dead entries even while a transaction keeps an old snapshot.
CREATE TABLE gq.round (
    number   bigint PRIMARY KEY DEFAULT 0,
    event    bigint NOT NULL DEFAULT 0,   -- the last number given
    gone     bigint NOT NULL DEFAULT 0,   -- events up to this one may have been removed
    time     bigint NOT NULL DEFAULT 0,   -- the store's time is not before this instant
    numbered xid8   NOT NULL DEFAULT '0', -- all segments of older transactions have numbers
    folded   xid8   NOT NULL DEFAULT '0'  -- all counts of older transactions are in gq.tally
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 1);

INSERT INTO gq.round DEFAULT VALUES;

CREATE VIEW gq.head AS
SELECT number, event, gone, time, numbered, folded FROM gq.round ORDER BY number DESC LIMIT 1;

-- Queues

-- A transaction locks this row to check the limits of the queue. A queue that was never
-- configured has no row; one that was deleted has a row without config.
CREATE TABLE gq.queue (
    name   text     COLLATE "C" PRIMARY KEY,
    config jsonb,
    due    bigint   NOT NULL DEFAULT 0,            -- when its rate limit allows the next claim; 0 for now
    turns  bigint[] NOT NULL DEFAULT '{0,0,0,0,0}' -- turn being served, by priority
);

-- The newest turn of each key of a fair queue, until it is over.
CREATE TABLE gq.turn (
    queue text     NOT NULL COLLATE "C",
    level smallint NOT NULL, -- priority
    key   text     NOT NULL COLLATE "C",
    turn  bigint   NOT NULL,
    PRIMARY KEY (queue, level, key)
);

-- Limit keys that owe units of their rate or have limits of their own; all others have no row. The
-- row of the queue is locked by whoever writes one.
CREATE TABLE gq.limit_key (
    queue  text    NOT NULL COLLATE "C",
    key    text    NOT NULL COLLATE "C",
    due    bigint  NOT NULL DEFAULT 0,     -- until when it owes something; 0 for nothing
    free   bigint  NOT NULL DEFAULT 0,     -- when the rate allows the next claim
    aside  boolean NOT NULL DEFAULT false, -- claims do not see its jobs until then
    lined  boolean NOT NULL DEFAULT false, -- some of its jobs have gq.ready.aside
    next   bigint  NOT NULL DEFAULT 0,     -- when claims see the next of them
    config jsonb,                          -- limits of its own; NULL for none
    PRIMARY KEY (queue, key)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 1);

CREATE INDEX limit_key_free ON gq.limit_key (queue, free) WHERE aside;

CREATE INDEX limit_key_next ON gq.limit_key (queue, next) WHERE lined;

CREATE INDEX limit_key_own ON gq.limit_key (queue, key) WHERE config IS NOT NULL;

-- Capacity that queues share. A transaction locks this row to grant capacity.
CREATE TABLE gq.pool (
    name     text    COLLATE "C" PRIMARY KEY,
    capacity bigint  NOT NULL,
    at_start boolean NOT NULL, -- only running jobs use capacity, not claimed ones
    updated  bigint  NOT NULL
);

-- The number of jobs in each status, and the cost units of those that are held: gq.tally plus
-- the changes in gq.delta since then.
CREATE TABLE gq.tally (
    queue  text     NOT NULL COLLATE "C",
    status smallint NOT NULL,
    jobs   bigint   NOT NULL,
    units  numeric  NOT NULL, -- millions of expensive jobs exceed a bigint
    PRIMARY KEY (queue, status)
) WITH (fillfactor = 50);

CREATE TABLE gq.delta (
    queue  text     NOT NULL COLLATE "C",
    status smallint NOT NULL,
    jobs   bigint   NOT NULL,
    units  bigint   NOT NULL,
    xid    xid8     NOT NULL DEFAULT pg_current_xact_id()
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 1);

CREATE INDEX delta_xid ON gq.delta (xid);

-- Where claims begin to read an index whose lower part is dead. Bands 1 to 5 of a queue are
-- its claimable jobs of each priority in order, with positions (order_hi, order_lo). Band 0
-- is its held jobs by due time, with positions (due, 0). Band 6 of the queue '' is all jobs
-- in gq.ready by due time. No row is below "at" except those recorded in gq.early.
CREATE TABLE gq.floor (
    queue   text     NOT NULL COLLATE "C",
    band    smallint NOT NULL,
    version bigint   NOT NULL,
    at      bigint[] NOT NULL,
    next    bigint[] NOT NULL, -- the next "at": writes below it are recorded in gq.early
    marked  xid8,              -- transactions from this one on know next; NULL if not known yet
    seen    xid8     NOT NULL, -- "at" takes gq.early of older transactions into account
    PRIMARY KEY (queue, band, version)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 1);

-- Positions below gq.floor.next at which rows were written.
CREATE TABLE gq.early (
    queue text     NOT NULL COLLATE "C",
    band  smallint NOT NULL,
    at    bigint[] NOT NULL,
    xid   xid8     NOT NULL DEFAULT pg_current_xact_id()
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 1);

CREATE INDEX early_xid ON gq.early (queue, band, xid);

-- Documents

-- Small records that are not jobs. Versions come from one sequence, so that a document that is
-- deleted and created again gets a version that was never used.
CREATE SEQUENCE gq.doc_version;

CREATE TABLE gq.doc (
    kind    text   NOT NULL COLLATE "C",
    name    text   NOT NULL COLLATE "C",
    version bigint NOT NULL,
    data    bytea  NOT NULL,
    PRIMARY KEY (kind, name)
);

-- Reports

-- The rest is for views.sql, which has the tables of the scheduler API and of matching as views. The
-- queue itself reads none of it.
--
-- The views show the queues that share the pool "scheduler" and the queue "matching". Jobs of
-- these queues, and their events, are also written to plain columns, in the same commit. The
-- program computes all values, so that the views only select and join. Jobs of other queues
-- have no row here and cost nothing.

-- The current state of a job.
CREATE TABLE gq.report (
    seq                bigint   NOT NULL,
    id                 uuid     NOT NULL,
    queue              text     NOT NULL COLLATE "C",
    type               text     NOT NULL COLLATE "C",
    cost               bigint   NOT NULL,
    requester          text     NOT NULL,
    tier               text     NOT NULL,
    max_fee            bigint   NOT NULL,
    asks               jsonb,             -- what a matching job asks for; NULL if no round can read it

    status             smallint NOT NULL,
    held               boolean  NOT NULL, -- CLAIMED or RUNNING
    scheduler_state    text     NOT NULL, -- the status as the scheduler API names it
    matching_state     text     NOT NULL, -- the status as matching names it
    priority           text     NOT NULL, -- as the scheduler API names it
    attempts           bigint   NOT NULL, -- executions started
    faults             bigint   NOT NULL, -- failures that count against the policy
    created            bigint   NOT NULL,
    started            bigint,            -- current or last attempt
    first_started      bigint,
    completed          bigint,            -- NULL until the job has finished
    failure            text,              -- message of the last failure
    failure_code       text,              -- its code, as matching names it
    reason             text,              -- why the job ended, if its handler did not end it
    lifetime           bigint   NOT NULL, -- from submission to the end, by the policy
    run_lifetime       bigint   NOT NULL, -- from the first lease to the end
    policy_ttl         bigint   NOT NULL, -- of a lease
    renew_before       bigint   NOT NULL, -- how long before the end of a lease to renew it

    claimed_by         text,              -- the worker that holds the job, or held it when it ended
    last_run           text,              -- the last lease under which the job ran
    lease              text     COLLATE "C", -- the current lease, or the last one
    lease_state        text,              -- as the scheduler API names it
    worker             text,
    granted            bigint,
    beat               bigint,            -- last heartbeat
    expires            bigint,
    ttl                bigint,
    lease_cost         bigint   NOT NULL,
    PRIMARY KEY (seq)
) PARTITION BY RANGE (seq);

-- One event of a job.
CREATE TABLE gq.report_event (
    segment         bigint  NOT NULL,
    place           integer NOT NULL,             -- within the segment, from 0
    job             uuid    NOT NULL,
    queue           text    NOT NULL COLLATE "C",
    type            text    NOT NULL COLLATE "C", -- job.submitted, job.started and so on
    final           boolean NOT NULL,             -- the job has finished
    scheduler_state text    NOT NULL,             -- the status from here on, as the scheduler API names it
    attempt         bigint  NOT NULL,
    lease           text    NOT NULL COLLATE "C", -- empty if there is none
    lease_state     text,                         -- the lease from here on, as the scheduler API names it
    lease_end       text,                         -- how the lease ended, as matching names it
    ends_run        boolean NOT NULL,             -- ends a lease under which the job ran
    fault           boolean NOT NULL,             -- a fault that matching counts as an attempt
    worker          text    NOT NULL,
    until           bigint,                       -- when the lease ends or the next run is due
    cost            bigint  NOT NULL,             -- capacity of the lease
    beat            bigint,                       -- last heartbeat under the lease
    message         text,
    reason          text,
    submitted       jsonb,                        -- of a submission: what the scheduler API shows
    PRIMARY KEY (segment, place)
) PARTITION BY RANGE (segment);

CREATE INDEX report_event_job ON gq.report_event (job);

-- Partitions

-- The range of numbers of each partition. The catalog has it only as text.
CREATE TABLE gq.partition (
    name  text   COLLATE "C" PRIMARY KEY, -- suffix of its tables' names
    first bigint NOT NULL UNIQUE,
    past  bigint NOT NULL UNIQUE,         -- the first number of the next one
    gone  bigint NOT NULL DEFAULT 0       -- events up to this one may have been dropped from it
);

-- The first partition is for numbers from before today: jobs imported from another store.
DO $$
DECLARE
    today bigint := (extract(epoch FROM clock_timestamp())::bigint / 86400) << 32;
BEGIN
    EXECUTE $sql$CREATE TABLE gq.done_0 PARTITION OF gq.done FOR VALUES FROM (MINVALUE) TO ($sql$ || today || ') WITH (toast_tuple_target = 8160)';
    EXECUTE $sql$CREATE TABLE gq.blob_0 PARTITION OF gq.blob FOR VALUES FROM (MINVALUE) TO ($sql$ || today || ')';
    EXECUTE $sql$CREATE TABLE gq.segment_0 PARTITION OF gq.segment FOR VALUES FROM (MINVALUE) TO ($sql$ || today || ')';
    EXECUTE $sql$CREATE TABLE gq.log_0 PARTITION OF gq.log FOR VALUES FROM (MINVALUE) TO ($sql$ || today || ')';
    EXECUTE $sql$CREATE TABLE gq.report_0 PARTITION OF gq.report FOR VALUES FROM (MINVALUE) TO ($sql$ || today || ')';
    EXECUTE $sql$CREATE TABLE gq.report_event_0 PARTITION OF gq.report_event FOR VALUES FROM (MINVALUE) TO ($sql$ || today || ')';
    INSERT INTO gq.partition (name, first, past) VALUES ('0', -9223372036854775808, today);
END $$;

-- What a matching job asks for; NULL if no round can read it. Called when a job is written.
CREATE FUNCTION gq.read_asks(asks text) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    IF jsonb_typeof(asks::jsonb) = 'object' AND coalesce((asks::jsonb ->> 'size_bytes')::bigint, 0) BETWEEN 0 AND 9007199254740991 THEN
        RETURN asks::jsonb;
    END IF;
    RETURN NULL;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END $$;

INSERT INTO gq.migration (version) VALUES (1);
