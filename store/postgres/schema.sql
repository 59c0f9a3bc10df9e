-- The tables of a queue in PostgreSQL.
--
-- Everything is in the schema gq, so that the database can be the application's own.
--
-- How a job is stored. What never changes is in gq.job. What changes is in exactly one of
-- gq.ready (waiting), gq.held (claimed or running) and gq.done (finished), so that a claim
-- deletes a row of one small table and inserts it into another, and history does not slow
-- down the present. What has happened is in gq.segment and gq.log: all events of one commit
-- are one row.
--
-- What nobody has to wait for. No row is written by everyone: counts are appended to
-- gq.delta and added up later, and events get their numbers after the commit.
--
-- What goes away. gq.job, gq.done, gq.blob, gq.segment and gq.log are partitioned by day.
-- Old days are dropped; nothing in these tables is ever deleted row by row. The numbers of
-- jobs and of commits have the day since 1970 in their upper bits and 32 bits to count, so
-- that a number tells its partition.
--
-- Conventions. Instants are nanoseconds since 1970, since a timestamptz would round them to
-- microseconds. Specs, states and events are in the binary form of package store/codec;
-- beside them are only the columns that a query selects or orders by. There are no foreign
-- keys: each would lock a row of gq.job for every row that names it.

CREATE SCHEMA gq;

CREATE TABLE gq.migration (
    version    integer     PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Jobs

CREATE SEQUENCE gq.submission CACHE 1;

-- What was submitted.
CREATE TABLE gq.job (
    seq      bigint NOT NULL,             -- the day, and the order of submission
    id       uuid   NOT NULL,
    cost     bigint NOT NULL,             -- capacity that it occupies
    created  bigint NOT NULL,
    type     text   NOT NULL COLLATE "C",
    requires text[] NOT NULL COLLATE "C", -- capabilities that a worker must offer
    spec     bytea  NOT NULL,             -- without the payload
    payload  bytea,
    PRIMARY KEY (seq)
) PARTITION BY RANGE (seq);

-- Which job has an id. Ids are random: to look for one in every partition would read a page
-- of each. A row goes with its job.
CREATE TABLE gq.name (
    id  uuid   PRIMARY KEY,
    seq bigint NOT NULL
);

-- Jobs that nobody holds: PENDING, DELAYED, SCHEDULED and RETRYING.
CREATE TABLE gq.ready (
    seq      bigint   PRIMARY KEY,
    order_hi bigint   NOT NULL,                        -- its place among those of its queue
    order_lo bigint   NOT NULL,
    run_at   bigint   NOT NULL,                        -- not claimable before
    due      bigint,                                   -- when time alone changes it; NULL for never
    status   smallint NOT NULL,
    queue    text     NOT NULL COLLATE "C",
    limited  text     COLLATE "C",                     -- the key that it shares a limit with; NULL for none
    fair     text     NOT NULL DEFAULT '' COLLATE "C", -- whose turn it takes
    data     bytea    NOT NULL,                        -- the commits that tell of it, then its state
    cost     bigint   NOT NULL,                        -- as in gq.job, for claims to select by
    type     text     NOT NULL COLLATE "C",
    requires text[]   COLLATE "C"                      -- NULL for nothing
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 1);

-- A claim reads the jobs of a queue that are, or will be, claimable in their order. 2, 3 and
-- 6 are DELAYED, SCHEDULED and RETRYING.
CREATE INDEX ready_claim ON gq.ready (queue, order_hi, order_lo) WHERE status IN (2, 3, 6);

-- For sweeps. It is on an expression so that no other query is ever planned to use it.
CREATE INDEX ready_due ON gq.ready ((due + 0), seq) WHERE due + 0 IS NOT NULL;

-- Jobs that are CLAIMED or RUNNING.
CREATE TABLE gq.held (
    seq     bigint   PRIMARY KEY,
    due     bigint,                    -- when its lease, run or lifetime ends; a held job always has one
    status  smallint NOT NULL,
    queue   text     NOT NULL COLLATE "C",
    limited text     COLLATE "C",
    fair    text     NOT NULL COLLATE "C",
    data    bytea    NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 1);

-- Leases that have run out, and what is held of a queue.
CREATE INDEX held_due ON gq.held (queue, due);

-- How many jobs of a limit key are held.
CREATE INDEX held_limited ON gq.held (queue, limited) WHERE limited IS NOT NULL;

CREATE VIEW gq.live AS
SELECT seq, due, status, queue, limited, fair, data FROM gq.ready
UNION ALL
SELECT seq, due, status, queue, limited, fair, data FROM gq.held;

-- Jobs that have finished.
CREATE TABLE gq.done (
    seq    bigint   NOT NULL,
    ended  bigint   NOT NULL,
    status smallint NOT NULL,
    queue  text     NOT NULL COLLATE "C",
    fair   text     NOT NULL COLLATE "C",
    data   bytea    NOT NULL,
    PRIMARY KEY (seq)
) PARTITION BY RANGE (seq);

-- Retention reads the jobs that ended in one status in the order in which they ended. The
-- number is an expression so that no other query is planned to use the index.
CREATE INDEX done_ended ON gq.done (status, ended, (seq + 0));

-- How far retention has come, by status: up to and including this job.
CREATE TABLE gq.horizon (
    status smallint PRIMARY KEY,
    ended  bigint   NOT NULL,
    seq    bigint   NOT NULL
) WITH (fillfactor = 10);

-- Results, checkpoints and other bytes of a job that its state does not need.
CREATE TABLE gq.blob (
    seq  bigint   NOT NULL,
    part smallint NOT NULL,
    data bytea    NOT NULL,
    PRIMARY KEY (seq, part)
) PARTITION BY RANGE (seq);

-- Leases whose id does not tell the job: those that this store has not made.
CREATE TABLE gq.lease (
    id  text   COLLATE "C" PRIMARY KEY,
    seq bigint NOT NULL
);

CREATE INDEX lease_seq ON gq.lease (seq);

-- Idempotency keys. Names are bytes: a client's key may contain what text cannot.
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

-- Dependencies

-- A child that waits for a parent that has not ended. FAN_OUT does not wait and has no row.
CREATE TABLE gq.edge (
    parent bigint   NOT NULL,
    child  bigint   NOT NULL,
    kind   smallint NOT NULL,
    PRIMARY KEY (parent, child)
);

CREATE INDEX edge_child ON gq.edge (child);

-- A parent that has ended and whose children have not all been told.
CREATE TABLE gq.ended (
    parent   bigint   PRIMARY KEY,
    status   smallint NOT NULL,
    priority smallint NOT NULL -- effective
);

-- Events

-- The events of one commit, or of a part of one. The id is taken while the rows of its jobs
-- are locked, so for any one job the ids are in the order of what happened. seq is the number
-- of its first event. It is given after the commit, so that no event ever appears behind one
-- that was read.
CREATE SEQUENCE gq.segment_id;
CREATE SEQUENCE gq.segment_place;

CREATE TABLE gq.segment (
    id     bigint  NOT NULL,
    seq    bigint,
    time   bigint  NOT NULL,
    events integer NOT NULL,
    token  uuid    NOT NULL, -- tells this commit from any other that might have had the id
    xid    xid8    NOT NULL DEFAULT pg_current_xact_id(),
    place  bigint  NOT NULL DEFAULT nextval('gq.segment_place'), -- in which order they are numbered
    PRIMARY KEY (id)
) PARTITION BY RANGE (id);

-- Segments without numbers, from the transaction on that gq.round names.
CREATE INDEX segment_fresh ON gq.segment (xid) WHERE seq IS NULL;
CREATE INDEX segment_seq ON gq.segment (seq) WHERE seq IS NOT NULL;

CREATE TABLE gq.log (
    id   bigint NOT NULL,
    data bytea  NOT NULL,
    PRIMARY KEY (id)
) PARTITION BY RANGE (id);

ALTER TABLE gq.log ALTER data SET STORAGE EXTERNAL;

-- How far numbering and counting have come. Each round inserts a row and deletes the one
-- before, so that everyone sees exactly one, and reads it from the upper end of the index,
-- where nothing is dead even if somebody holds an old snapshot open.
CREATE TABLE gq.round (
    number   bigint PRIMARY KEY DEFAULT 0,
    event    bigint NOT NULL DEFAULT 0,   -- the last number given
    gone     bigint NOT NULL DEFAULT 0,   -- events up to this one may have been removed
    time     bigint NOT NULL DEFAULT 0,   -- an instant that time has reached
    numbered xid8   NOT NULL DEFAULT '0', -- all segments of older transactions have numbers
    folded   xid8   NOT NULL DEFAULT '0'  -- all counts of older transactions are in gq.tally
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 1);

INSERT INTO gq.round DEFAULT VALUES;

CREATE VIEW gq.head AS
SELECT number, event, gone, time, numbered, folded FROM gq.round ORDER BY number DESC LIMIT 1;

-- Queues

-- A row is also the lock under which the limits of its queue are checked. A queue that nobody
-- has configured has no config and may have no row.
CREATE TABLE gq.queue (
    name   text     COLLATE "C" PRIMARY KEY,
    config jsonb,
    due    bigint   NOT NULL DEFAULT 0,            -- when its rate allows the next claim; 0 for at once
    turns  bigint[] NOT NULL DEFAULT '{0,0,0,0,0}' -- being served, by priority
);

-- The newest turn of each key of a fair queue, until it is over.
CREATE TABLE gq.turn (
    queue text     NOT NULL COLLATE "C",
    level smallint NOT NULL, -- priority
    key   text     NOT NULL COLLATE "C",
    turn  bigint   NOT NULL,
    PRIMARY KEY (queue, level, key)
);

-- Capacity that queues share. A row is the lock under which it is given.
CREATE TABLE gq.pool (
    name     text    COLLATE "C" PRIMARY KEY,
    capacity bigint  NOT NULL,
    at_start boolean NOT NULL, -- only running jobs count, not those that are held
    updated  bigint  NOT NULL
);

-- The number of jobs in each status: what has been added up, and what has come since.
CREATE TABLE gq.tally (
    queue  text     NOT NULL COLLATE "C",
    status smallint NOT NULL,
    jobs   bigint   NOT NULL,
    PRIMARY KEY (queue, status)
) WITH (fillfactor = 50);

CREATE TABLE gq.delta (
    queue  text     NOT NULL COLLATE "C",
    status smallint NOT NULL,
    jobs   bigint   NOT NULL,
    xid    xid8     NOT NULL DEFAULT pg_current_xact_id()
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 1);

CREATE INDEX delta_xid ON gq.delta (xid);

-- Where claims begin to read an index whose lower part is dead. Lanes 1 to 5 of a queue are
-- its claimable jobs of each priority in their order, and a position is (order_hi, order_lo);
-- lane 0 is its held jobs by when they are due, and a position is (due, 0); lane 6 of the
-- queue '' is likewise all jobs that are not held. No row is below "at" except those that
-- gq.early tells of.
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

-- Documents

-- Small records beside the jobs. Versions come from one sequence, so that a document that is
-- made again has one that nobody has seen.
CREATE SEQUENCE gq.doc_version;

CREATE TABLE gq.doc (
    kind    text   NOT NULL COLLATE "C",
    name    text   NOT NULL COLLATE "C",
    version bigint NOT NULL,
    data    bytea  NOT NULL,
    PRIMARY KEY (kind, name)
);

-- Partitions

-- Which numbers are in which partition. The catalog knows it too, as text.
CREATE TABLE gq.partition (
    name  text   COLLATE "C" PRIMARY KEY, -- what follows the name of the table
    first bigint NOT NULL UNIQUE,
    past  bigint NOT NULL UNIQUE,         -- the first number of the next one
    gone  bigint NOT NULL DEFAULT 0       -- events up to this one may have been dropped from it
);

-- The first partition takes what is older than today: jobs that were copied from elsewhere.
DO $$
DECLARE
    today bigint := (extract(epoch FROM clock_timestamp())::bigint / 86400) << 32;
BEGIN
    EXECUTE format('CREATE TABLE gq.job_0 PARTITION OF gq.job FOR VALUES FROM (MINVALUE) TO (%s)', today);
    EXECUTE format('CREATE TABLE gq.done_0 PARTITION OF gq.done FOR VALUES FROM (MINVALUE) TO (%s)', today);
    EXECUTE format('CREATE TABLE gq.blob_0 PARTITION OF gq.blob FOR VALUES FROM (MINVALUE) TO (%s)', today);
    EXECUTE format('CREATE TABLE gq.segment_0 PARTITION OF gq.segment FOR VALUES FROM (MINVALUE) TO (%s)', today);
    EXECUTE format('CREATE TABLE gq.log_0 PARTITION OF gq.log FOR VALUES FROM (MINVALUE) TO (%s)', today);
    INSERT INTO gq.partition (name, first, past) VALUES ('0', -9223372036854775808, today);
END $$;

-- Readers of the binary form
--
-- What follows is for people who read with SQL, and for reports: the views of the scheduler
-- API's and the matching document's tables, and the functions that they need. The queue
-- itself uses none of it. A row of a view is there with the commit of what it tells of,
-- except that an event is listed once it has its number.

-- A number at a position, and the position behind it. Both are inlined: most numbers
-- have one byte.
CREATE FUNCTION gq.long_uvarint(b bytea, at integer) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    value bigint := 0;
    shift integer := 0;
    byte  integer;
BEGIN
    LOOP
        byte := get_byte(b, at);
        value := value | ((byte & 127)::bigint << shift);
        EXIT WHEN byte < 128;
        at := at + 1;
        shift := shift + 7;
    END LOOP;
    RETURN value;
END $$;

CREATE FUNCTION gq.long_past(b bytea, at integer) RETURNS integer
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    WHILE get_byte(b, at) > 127 LOOP
        at := at + 1;
    END LOOP;
    RETURN at + 1;
END $$;

CREATE FUNCTION gq.uvarint(b bytea, at integer) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN get_byte(b, at) < 128 THEN get_byte(b, at) ELSE gq.long_uvarint(b, at) END;

CREATE FUNCTION gq.past(b bytea, at integer) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN get_byte(b, at) < 128 THEN at + 1 ELSE gq.long_past(b, at) END;

-- A number that may be negative, out of one that is not.
CREATE FUNCTION gq.signed(value bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN ((value >> 1) & 9223372036854775807) # -(value & 1);

CREATE FUNCTION gq.fixed(b bytea, at integer) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN ('x' || encode(substring(b FROM at + 1 FOR 8), 'hex'))::bit(64)::bigint;

-- A policy. Of one that is its preset only the preset is written.
CREATE FUNCTION gq.read_policy(
    b bytea, INOUT at integer, OUT preset smallint,
    OUT lease_ttl bigint, OUT lifetime bigint, OUT run_lifetime bigint, OUT renew_by_ppb bigint
) LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    n bigint;
BEGIN
    preset := get_byte(b, at);
    at := at + 2;
    IF get_byte(b, at - 1) = 0 THEN
        RETURN;
    END IF;
    at := at + 5 + 8; -- rules, and the multiplier of the backoff
    at := gq.past(b, at) + gq.uvarint(b, at); -- its name
    FOR i IN 1 .. 13 LOOP
        IF i IN (3, 6, 7, 12) THEN
            n := gq.uvarint(b, at);
            n := gq.signed(n);
            CASE i
                WHEN 3 THEN lease_ttl := n;
                WHEN 6 THEN lifetime := n;
                WHEN 7 THEN run_lifetime := n;
                ELSE renew_by_ppb := n;
            END CASE;
        END IF;
        at := gq.past(b, at);
    END LOOP;
END $$;

-- The commits that tell of a job, which come before its state.
CREATE FUNCTION gq.read_segments(b bytea, OUT at integer, OUT ids bigint[])
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    many bigint;
    last bigint := 0;
BEGIN
    ids := '{}';
    many := gq.uvarint(b, 0);
    at := gq.past(b, 0);
    FOR i IN 1 .. many LOOP
        last := last + gq.uvarint(b, at);
        at := gq.past(b, at);
        ids := ids || last;
    END LOOP;
END $$;

-- A state, as far as the views tell it.
CREATE FUNCTION gq.read_state(
    b bytea, OUT id uuid, OUT status smallint, OUT detail smallint, OUT priority smallint, OUT preset smallint,
    OUT lease_ttl bigint, OUT lifetime bigint, OUT run_lifetime bigint, OUT renew_by_ppb bigint,
    OUT created bigint, OUT attempt bigint, OUT faults bigint, OUT started bigint, OUT first_started bigint, OUT completed bigint,
    OUT lease text, OUT lease_state smallint, OUT worker text, OUT lease_attempt bigint, OUT granted bigint, OUT beat bigint,
    OUT expires bigint, OUT ttl bigint, OUT renewals bigint, OUT cost bigint,
    OUT category smallint, OUT code text, OUT message text, OUT reason text
) LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    at   integer;
    has  bigint;
    n    bigint;
    many bigint;
BEGIN
    b := b || ''::bytea; -- fetched once
    many := gq.uvarint(b, 0); -- the segments that tell of it
    at := gq.past(b, 0);
    FOR i IN 1 .. many LOOP
        at := gq.past(b, at);
    END LOOP;
    IF get_byte(b, at) <> 1 THEN
        RAISE EXCEPTION 'a state of version %, these views know 1', get_byte(b, at);
    END IF;
    status := get_byte(b, at + 1);
    detail := get_byte(b, at + 2) >> 4;
    priority := get_byte(b, at + 2) & 15;
    at := at + 3;
    has := gq.uvarint(b, at);
    at := gq.past(b, at);
    id := encode(substring(b FROM at + 1 FOR 16), 'hex')::uuid;
    at := at + 16;
    IF get_byte(b, at + 1) = 0 THEN -- the policy is its preset
        preset := get_byte(b, at);
        at := at + 2;
    ELSE
        SELECT r.at, r.preset, r.lease_ttl, r.lifetime, r.run_lifetime, r.renew_by_ppb
            INTO at, preset, lease_ttl, lifetime, run_lifetime, renew_by_ppb FROM gq.read_policy(b, at) AS r;
    END IF;
    created := gq.fixed(b, at);
    at := gq.past(b, at + 8); -- updated
    at := gq.past(b, at); -- depth
    IF has & 32768 <> 0 THEN -- turn
        at := gq.past(b, at);
    END IF;
    IF has & 1 <> 0 THEN -- inherited priority
        at := at + 1;
    END IF;
    IF has & 2 <> 0 THEN -- waits
        at := gq.past(b, at);
    END IF;
    attempt := 0;
    faults := 0;
    IF has & 4 <> 0 THEN
        attempt := gq.uvarint(b, at);
        at := gq.past(b, at);
        at := gq.past(b, at); -- bound
        faults := gq.uvarint(b, at);
        at := gq.past(b, at);
        at := gq.past(b, at); -- losses
        at := gq.past(b, at); -- version
    END IF;
    IF has & 8 <> 0 THEN -- run at
        at := gq.past(b, at);
    END IF;
    IF has & 16 <> 0 THEN -- scheduled at
        at := gq.past(b, at);
    END IF;
    IF has & 32 <> 0 THEN
        n := gq.uvarint(b, at);
        at := gq.past(b, at);
        started := created + gq.signed(n);
        n := gq.uvarint(b, at);
        at := gq.past(b, at);
        first_started := created + gq.signed(n);
    END IF;
    IF has & 65536 <> 0 THEN -- it was leased and never started
        n := gq.uvarint(b, at);
        at := gq.past(b, at);
        first_started := created + gq.signed(n);
    END IF;
    IF has & 64 <> 0 THEN
        n := gq.uvarint(b, at);
        at := gq.past(b, at);
        completed := created + gq.signed(n);
    END IF;
    IF has & 128 <> 0 THEN
        IF get_byte(b, at) = 1 THEN
            lease := encode(substring(b FROM at + 2 FOR 16), 'hex')::uuid::text;
            at := at + 17;
        ELSE
            n := gq.uvarint(b, at + 1);
            at := gq.past(b, at + 1);
            lease := convert_from(substring(b FROM at + 1 FOR n::integer), 'UTF8');
            at := at + n;
        END IF;
        at := gq.past(b, at); -- version
        lease_state := get_byte(b, at);
        n := gq.uvarint(b, at + 1);
        at := gq.past(b, at + 1);
        worker := convert_from(substring(b FROM at + 1 FOR n::integer), 'UTF8');
        at := at + n;
        lease_attempt := gq.uvarint(b, at);
        at := gq.past(b, at);
        IF get_byte(b, at) = 1 THEN -- the one before
            at := at + 17;
        ELSE
            n := gq.uvarint(b, at + 1);
            at := gq.past(b, at + 1) + n;
        END IF;
        n := gq.uvarint(b, at);
        at := gq.past(b, at);
        granted := created + gq.signed(n);
        n := gq.uvarint(b, at);
        at := gq.past(b, at);
        beat := granted + gq.signed(n);
        n := gq.uvarint(b, at);
        at := gq.past(b, at);
        expires := beat + gq.signed(n);
        n := gq.uvarint(b, at);
        at := gq.past(b, at);
        ttl := gq.signed(n);
        renewals := gq.uvarint(b, at);
        at := gq.past(b, at);
        cost := gq.uvarint(b, at);
        at := gq.past(b, at);
        at := at + 8; -- digest of the settlement
    END IF;
    IF has & (256 + 512 + 1024 + 2048 + 4096) = 0 THEN
        RETURN;
    END IF;
    IF has & 256 <> 0 THEN -- the settlement before
        IF get_byte(b, at) = 1 THEN
            at := at + 17;
        ELSE
            n := gq.uvarint(b, at + 1);
            at := gq.past(b, at + 1) + n;
        END IF;
        at := at + 8;
    END IF;
    IF has & 512 <> 0 THEN -- progress and note
        n := gq.uvarint(b, at + 8);
        at := gq.past(b, at + 8) + n;
    END IF;
    IF has & 1024 <> 0 THEN
        category := get_byte(b, at);
        n := gq.uvarint(b, at + 1);
        at := gq.past(b, at + 1);
        code := convert_from(substring(b FROM at + 1 FOR n::integer), 'UTF8');
        at := at + n;
        n := gq.uvarint(b, at);
        at := gq.past(b, at);
        message := convert_from(substring(b FROM at + 1 FOR n::integer), 'UTF8');
        at := at + n;
        at := gq.past(b, at); -- retry after
    END IF;
    IF has & 2048 <> 0 THEN -- cancellation
        FOR i IN 1 .. 3 LOOP
            at := at + CASE get_byte(b, at) WHEN 1 THEN 9 ELSE 1 END;
        END LOOP;
        n := gq.uvarint(b, at);
        at := gq.past(b, at) + n;
    END IF;
    IF has & 4096 <> 0 THEN
        n := gq.uvarint(b, at);
        at := gq.past(b, at);
        reason := convert_from(substring(b FROM at + 1 FOR n::integer), 'UTF8');
    END IF;
END $$;

-- A spec, as far as the views tell it and it has no column.
CREATE FUNCTION gq.read_spec(
    b bytea, OUT priority smallint, OUT requester text, OUT tier text, OUT max_fee bigint, OUT attributes jsonb
) LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    at    integer;
    has   bigint;
    many  bigint;
    n     bigint;
    name  text;
BEGIN
    b := b || ''::bytea; -- fetched once
    IF get_byte(b, 0) <> 1 THEN
        RAISE EXCEPTION 'a spec of version %, these views know 1', get_byte(b, 0);
    END IF;
    has := gq.uvarint(b, 1);
    at := gq.past(b, 1) + 16; -- id
    at := gq.past(b, at) + gq.uvarint(b, at); -- queue
    at := gq.past(b, at) + gq.uvarint(b, at); -- type
    SELECT r.at INTO at FROM gq.read_policy(b, at) AS r;
    priority := get_byte(b, at);
    at := at + 2;
    IF get_byte(b, at - 1) = 0 THEN -- content type
        at := gq.past(b, at) + gq.uvarint(b, at);
    END IF;
    IF has & 1 <> 0 THEN -- key
        at := gq.past(b, at) + gq.uvarint(b, at);
        at := gq.past(b, at) + gq.uvarint(b, at) + 8;
    END IF;
    IF has & 2 <> 0 THEN -- first run
        at := at + 8;
    END IF;
    IF has & 512 <> 0 THEN -- delay
        at := gq.past(b, at);
    END IF;
    IF has & 4 <> 0 THEN -- dependencies
        at := gq.past(b, at) + 17 * gq.uvarint(b, at);
    END IF;
    IF has & 8 <> 0 THEN -- cost
        at := gq.past(b, at);
    END IF;
    IF has & 16 <> 0 THEN -- requires
        many := gq.uvarint(b, at);
        at := gq.past(b, at);
        FOR i IN 1 .. many LOOP
            at := gq.past(b, at) + gq.uvarint(b, at);
        END LOOP;
    END IF;
    IF has & 32 <> 0 THEN
        n := gq.uvarint(b, at);
        at := gq.past(b, at);
        requester := convert_from(substring(b FROM at + 1 FOR n::integer), 'UTF8');
        at := at + n;
        n := gq.uvarint(b, at);
        at := gq.past(b, at);
        tier := convert_from(substring(b FROM at + 1 FOR n::integer), 'UTF8');
        at := at + n;
        max_fee := gq.uvarint(b, at);
        at := gq.past(b, at);
    END IF;
    IF has & 1024 <> 0 THEN -- limit key and fair key
        at := gq.past(b, at) + gq.uvarint(b, at);
        at := gq.past(b, at) + gq.uvarint(b, at);
    END IF;
    attributes := '{}';
    IF has & 64 <> 0 THEN
        many := gq.uvarint(b, at);
        at := gq.past(b, at);
        FOR i IN 1 .. many LOOP
            n := gq.uvarint(b, at);
            at := gq.past(b, at);
            name := convert_from(substring(b FROM at + 1 FOR n::integer), 'UTF8');
            at := at + n;
            n := gq.uvarint(b, at);
            at := gq.past(b, at);
            attributes := attributes || jsonb_build_object(name, convert_from(substring(b FROM at + 1 FOR n::integer), 'UTF8'));
            at := at + n;
        END LOOP;
    END IF;
END $$;

-- The events of a segment whose first event has the number first.
CREATE FUNCTION gq.read_log(first bigint, b bytea) RETURNS TABLE (
    seq bigint, job uuid, queue text, type smallint, status smallint, attempt bigint, lease text, lease_state smallint, worker text,
    until bigint, detail smallint, category smallint, code text, message text, reason text, cost bigint, beat bigint
) LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE ROWS 10 AS $$
DECLARE
    at   integer := 0;
    size bigint;
    has  integer;
    next bigint := first;
    ends integer := length(b);
BEGIN
    b := b || ''::bytea; -- fetched once, and not for every byte
    queue := '';
    WHILE at < ends LOOP
        job := encode(substring(b FROM at + 1 FOR 16), 'hex')::uuid;
        at := at + 16;
        size := gq.uvarint(b, at);
        at := gq.past(b, at);
        IF job = '00000000-0000-0000-0000-000000000000' THEN -- so many were left out
            next := next + size;
            CONTINUE;
        END IF;
        IF size > 0 THEN
            queue := convert_from(substring(b FROM at + 1 FOR size::integer), 'UTF8');
            at := at + size;
        END IF;
        seq := next;
        next := next + 1;
        type := get_byte(b, at);
        status := get_byte(b, at + 1);
        has := get_byte(b, at + 2);
        at := at + 3;
        attempt := gq.uvarint(b, at);
        at := gq.past(b, at);
        lease := ''; lease_state := 0; worker := ''; until := NULL; detail := 0;
        category := NULL; code := NULL; message := NULL; reason := ''; cost := 0; beat := NULL;
        IF has & 1 <> 0 THEN
            IF get_byte(b, at) = 1 THEN
                lease := encode(substring(b FROM at + 2 FOR 16), 'hex')::uuid::text;
                at := at + 17;
            ELSE
                size := gq.uvarint(b, at + 1);
                at := gq.past(b, at + 1);
                lease := convert_from(substring(b FROM at + 1 FOR size::integer), 'UTF8');
                at := at + size;
            END IF;
            at := gq.past(b, at); -- version
            lease_state := get_byte(b, at);
            size := gq.uvarint(b, at + 1);
            at := gq.past(b, at + 1);
            worker := convert_from(substring(b FROM at + 1 FOR size::integer), 'UTF8');
            at := at + size;
        END IF;
        IF has & 2 <> 0 THEN
            until := gq.fixed(b, at);
            at := at + 8;
        END IF;
        IF has & 4 <> 0 THEN
            detail := get_byte(b, at);
            at := at + 1;
        END IF;
        IF has & 8 <> 0 THEN
            category := get_byte(b, at);
            size := gq.uvarint(b, at + 1);
            at := gq.past(b, at + 1);
            code := convert_from(substring(b FROM at + 1 FOR size::integer), 'UTF8');
            at := at + size;
            size := gq.uvarint(b, at);
            at := gq.past(b, at);
            message := convert_from(substring(b FROM at + 1 FOR size::integer), 'UTF8');
            at := at + size;
            at := gq.past(b, at); -- retry after
        END IF;
        IF has & 16 <> 0 THEN
            size := gq.uvarint(b, at);
            at := gq.past(b, at);
            reason := convert_from(substring(b FROM at + 1 FOR size::integer), 'UTF8');
            at := at + size;
        END IF;
        IF has & 32 <> 0 THEN
            cost := gq.uvarint(b, at);
            at := gq.past(b, at);
        END IF;
        IF has & 64 <> 0 THEN
            beat := gq.fixed(b, at);
            at := at + 8;
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;

-- An instant, to the microsecond that a timestamptz can hold.
CREATE FUNCTION gq.instant(nanoseconds bigint) RETURNS timestamptz
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN '1970-01-01 00:00:00+00'::timestamptz + (nanoseconds / 1000) * interval '1 microsecond';

-- An instant as text, as the faces write it.
CREATE FUNCTION gq.stamp(nanoseconds bigint) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN nanoseconds IS NULL THEN '0001-01-01T00:00:00Z'
    ELSE to_char(gq.instant(nanoseconds) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS')
        || rtrim(rtrim('.' || lpad((nanoseconds / 1000 % 1000000)::text, 6, '0'), '0'), '.') || 'Z'
END;

-- What is JSON, as that; NULL for what is not.
CREATE FUNCTION gq.read_json(b bytea) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    RETURN convert_from(b, 'UTF8')::jsonb;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END $$;

-- All jobs that are still kept.
CREATE VIEW gq.job_now AS
SELECT l.seq, l.queue, l.data FROM gq.live AS l
UNION ALL
SELECT s.seq, s.queue, s.data
FROM gq.done AS s
WHERE NOT EXISTS (SELECT FROM gq.horizon AS h WHERE h.status = s.status AND (h.ended, h.seq) >= (s.ended, s.seq));

-- All events that have numbers.
CREATE VIEW gq.event AS
SELECT e.*, s.time
FROM gq.segment AS s
JOIN gq.log AS l USING (id)
CROSS JOIN LATERAL gq.read_log(s.seq, l.data) AS e
WHERE s.seq IS NOT NULL;

-- The events of one job, by the row that lists them.
CREATE FUNCTION gq.history(data bytea, of uuid) RETURNS TABLE (
    seq bigint, "time" bigint, type smallint, status smallint, attempt bigint, lease text, lease_state smallint, worker text,
    until bigint, code text, reason text, cost bigint, beat bigint
) LANGUAGE sql STABLE STRICT AS $$
    SELECT e.seq, s.time, e.type, e.status, e.attempt, e.lease, e.lease_state, e.worker, e.until, e.code, e.reason, e.cost, e.beat
    FROM unnest((gq.read_segments(data)).ids) AS n (id)
    JOIN gq.segment AS s USING (id)
    JOIN gq.log AS l USING (id)
    CROSS JOIN LATERAL gq.read_log(s.seq, l.data) AS e
    WHERE s.seq IS NOT NULL AND e.job = of
    ORDER BY e.seq
$$;

-- The scheduler API

-- The scheduler API's names.
CREATE FUNCTION gq.scheduler_state(status smallint, detail smallint, category smallint) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN status IN (1, 2, 3, 6) THEN 'QUEUED'
    WHEN status = 4 AND detail = 2 THEN 'PREPARING'
    WHEN status = 4 AND detail = 3 THEN 'LEASE_PENDING'
    WHEN status = 4 THEN 'CLAIMED'
    WHEN status = 5 THEN 'RUNNING'
    WHEN status = 7 THEN 'DONE'
    WHEN status IN (8, 9) AND category = 3 THEN 'TIMEOUT'
    WHEN status IN (8, 9) THEN 'FAILED'
    ELSE 'CANCELED'
END;

CREATE FUNCTION gq.scheduler_priority(priority smallint) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE priority WHEN 1 THEN 'URGENT' WHEN 2 THEN 'HIGH' WHEN 3 THEN 'NORMAL' ELSE 'LOW' END;

-- Whether an event ends a lease under which its job had started.
CREATE FUNCTION gq.ends_run(type smallint, lease_state smallint, code text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN type IN (7, 8, 10) THEN lease_state > 1
    WHEN type = 9 THEN lease_state > 1 AND code IS DISTINCT FROM 'ack_timeout'
    WHEN type = 11 THEN lease_state IN (2, 3)
    ELSE false
END;

-- The queues whose jobs are the scheduler's: those that share its pool.
CREATE VIEW gq.scheduler_addon AS
SELECT q.name FROM gq.queue AS q WHERE q.config ->> 'Pool' = 'scheduler';

CREATE VIEW gq.scheduler_job_runs AS
SELECT
    s.id AS job_id, r.queue AS addon_id, j.type AS job_type, gq.scheduler_priority(s.priority) AS priority, j.cost AS cost_units,
    gq.scheduler_state(s.status, s.detail, s.category) AS state, s.attempt AS attempts,
    gq.instant(s.created) AS created_at, gq.instant(s.started) AS started_at, gq.instant(s.completed) AS finished_at,
    CASE WHEN h.held THEN s.worker END AS claimed_by,
    CASE
        WHEN h.held AND s.lease_attempt > 0 THEN s.lease
        WHEN s.attempt > 0 THEN (SELECT e.lease FROM gq.history(r.data, s.id) AS e WHERE e.type = 6 ORDER BY e.seq DESC LIMIT 1)
    END AS lease_id,
    CASE WHEN s.status = 7 THEN 'SUCCEEDED' WHEN s.status > 7 THEN gq.scheduler_state(s.status, s.detail, s.category) END AS final_status,
    CASE WHEN s.status > 7 THEN coalesce(w.report ->> 'error', nullif(s.message, ''), nullif(s.reason, '')) END AS error_text,
    CASE WHEN s.status >= 7 THEN nullif(CASE
        WHEN w.framed THEN w.report -> 'result_data'
        WHEN w.report IS NULL THEN to_jsonb(translate(encode(w.result, 'base64'), E'\n', ''))
        ELSE w.report
    END, 'null') END AS result_json,
    CASE WHEN s.status >= 7 AND w.framed THEN nullif(w.report -> 'metrics', 'null') END AS metrics_json
FROM gq.job_now AS r
JOIN gq.job AS j USING (seq)
CROSS JOIN LATERAL gq.read_state(r.data) AS s
CROSS JOIN LATERAL (
    SELECT s.lease IS NOT NULL AND (s.status IN (4, 5) OR s.status >= 7 AND (s.lease_attempt > 0 OR s.lease_state = 4)) AS held
) AS h
LEFT JOIN LATERAL (
    SELECT b.data AS result, p.report,
        p.report <> '{}' AND jsonb_typeof(p.report) = 'object' AND p.report - '{result_data,error,metrics}'::text[] = '{}' AS framed
    FROM gq.blob AS b, LATERAL (SELECT gq.read_json(b.data) AS report) AS p
    WHERE b.seq = r.seq AND b.part = 2 AND length(b.data) > 0
) AS w ON true
WHERE r.queue IN (SELECT a.name FROM gq.scheduler_addon AS a);

-- Two sets of thousands of rows are hashed, also where the planner has no statistics
-- and believes them to be small: nested loops would compare each with each.
CREATE FUNCTION gq.scheduler_leases() RETURNS TABLE (
    lease_id text, job_id uuid, addon_id text, cost_units bigint, ttl_sec bigint, granted_at timestamptz, last_heartbeat_at timestamptz,
    released_at timestamptz, expires_at timestamptz, state text, release_status text
) LANGUAGE sql STABLE SET enable_nestloop = off SET jit = off AS $$
    WITH job AS MATERIALIZED (
        SELECT r.queue, r.data, s.*
        FROM gq.job_now AS r
        CROSS JOIN LATERAL gq.read_state(r.data) AS s
        WHERE r.queue IN (SELECT a.name FROM gq.scheduler_addon AS a)
    ), told AS ( -- starts and ends of runs, each segment read once
        SELECT e.job, e.seq, s.time, e.type, e.status, e.lease, e.lease_state, e.until, e.cost, e.beat
        FROM (SELECT DISTINCT unnest((gq.read_segments(j.data)).ids) AS id FROM job AS j) AS n
        JOIN gq.segment AS s USING (id)
        JOIN gq.log AS l USING (id)
        CROSS JOIN LATERAL gq.read_log(s.seq, l.data) AS e
        WHERE s.seq IS NOT NULL AND (e.type = 6 OR gq.ends_run(e.type, e.lease_state, e.code))
    ), run AS ( -- each start with the end behind it: a lease starts once
        SELECT t.*, lead(t.time) OVER w AS over, lead(t.status) OVER w AS after, lead(t.lease_state) OVER w AS ended, lead(t.beat) OVER w AS last
        FROM told AS t
        WINDOW w AS (PARTITION BY t.job, t.lease ORDER BY t.seq)
    )
    SELECT
        e.lease, s.id, s.queue, l.cost, (l.ttl + 999999999) / 1000000000, gq.instant(l.granted), gq.instant(l.beat),
        CASE WHEN l.state IN (2, 4) THEN gq.instant(e.over) END,
        gq.instant(l.expires),
        CASE l.state WHEN 1 THEN 'ACTIVE' WHEN 3 THEN 'EXPIRED' ELSE 'RELEASED' END,
        CASE
            WHEN l.state NOT IN (2, 4) OR e.after < 7 THEN NULL
            WHEN s.status = 7 THEN 'SUCCEEDED'
            ELSE gq.scheduler_state(s.status, s.detail, s.category)
        END
    FROM run AS e
    JOIN job AS s ON s.id = e.job
    CROSS JOIN LATERAL (
        SELECT
            CASE WHEN s.lease = e.lease THEN s.cost ELSE e.cost END AS cost,
            CASE WHEN s.lease = e.lease THEN s.ttl ELSE e.until - e.time END AS ttl,
            CASE WHEN s.lease = e.lease THEN s.granted ELSE e.time END AS granted,
            CASE WHEN s.lease = e.lease THEN s.beat ELSE coalesce(e.last, e.time) END AS beat,
            CASE WHEN s.lease = e.lease THEN s.expires ELSE coalesce(e.last + e.until - e.time, e.until) END AS expires,
            CASE WHEN s.lease = e.lease THEN s.lease_state ELSE coalesce(e.ended, 1) END AS state
    ) AS l
    WHERE e.type = 6
$$;

CREATE VIEW gq.scheduler_lease_runs AS SELECT * FROM gq.scheduler_leases();

CREATE VIEW gq.scheduler_events AS
SELECT
    2 * e.seq + CASE v.about WHEN 'JOB' THEN 1 ELSE 0 END AS id, gq.instant(e.time) AS ts,
    v.about AS entity_type, CASE v.about WHEN 'JOB' THEN e.job::text ELSE e.lease END AS entity_id,
    v.name AS event_type, jsonb_strip_nulls(v.data) AS data_json
FROM gq.event AS e
CROSS JOIN LATERAL (SELECT gq.ends_run(e.type, e.lease_state, e.code) AS over, nullif(e.worker, '') AS worker, nullif(e.reason, '') AS reason) AS o
CROSS JOIN LATERAL (
    SELECT jsonb_build_object('worker_id', o.worker, 'lease_id', CASE WHEN o.over OR e.type = 6 THEN nullif(e.lease, '') END) AS data
) AS under
CROSS JOIN LATERAL (
    SELECT 'LEASE' AS about, CASE WHEN e.lease_state = 3 THEN 'LEASE_EXPIRED' ELSE 'LEASE_RELEASED' END AS name,
        jsonb_build_object('job_id', e.job, 'worker_id', o.worker, 'cost_units', e.cost) AS data
    WHERE o.over
    UNION ALL
    SELECT 'LEASE', 'LEASE_GRANTED', jsonb_build_object(
        'job_id', e.job, 'worker_id', o.worker, 'cost_units', e.cost, 'expires_at', gq.stamp(e.until))
    WHERE e.type = 6
    UNION ALL
    SELECT 'LEASE', 'LEASE_RENEWED', jsonb_build_object('job_id', e.job, 'worker_id', o.worker, 'expires_at', gq.stamp(e.until))
    WHERE e.type = 14
    UNION ALL
    SELECT 'JOB', CASE e.type
            WHEN 1 THEN 'JOB_SUBMITTED' WHEN 4 THEN 'JOB_CLAIMED' WHEN 5 THEN 'JOB_' || gq.scheduler_state(e.status, e.detail, NULL)
            WHEN 6 THEN 'JOB_RUNNING' WHEN 7 THEN 'JOB_DONE' WHEN 9 THEN 'JOB_REQUEUED' WHEN 2 THEN 'JOB_REQUEUED'
            WHEN 11 THEN 'JOB_CANCELED' WHEN 12 THEN 'JOB_CANCEL_REQUESTED' WHEN 13 THEN 'JOB_CANCEL_DELIVERED' WHEN 15 THEN 'JOB_UPDATED'
            ELSE 'JOB_' || gq.scheduler_state(e.status, 0::smallint, e.category)
        END,
        CASE e.type
            WHEN 1 THEN coalesce((
                SELECT jsonb_build_object(
                    'priority', gq.scheduler_priority((gq.read_spec(j.spec)).priority),
                    'addon_id', e.queue, 'job_type', nullif(j.type, ''), 'cost_units', j.cost)
                FROM gq.name AS n
                JOIN gq.job AS j USING (seq)
                WHERE n.id = e.job
            ), '{}')
            WHEN 4 THEN jsonb_build_object('worker_id', o.worker, 'claim_expires_at', gq.stamp(e.until))
            WHEN 5 THEN jsonb_build_object('worker_id', o.worker)
            WHEN 6 THEN under.data || jsonb_build_object('attempt', e.attempt)
            WHEN 7 THEN under.data
            WHEN 9 THEN under.data || jsonb_build_object('error', nullif(e.message, ''), 'next_retry_at', gq.stamp(e.until), 'reason', o.reason)
            WHEN 2 THEN jsonb_build_object('worker_id', o.worker, 'reason', o.reason)
            WHEN 11 THEN under.data || jsonb_build_object('reason', o.reason)
            WHEN 12 THEN jsonb_build_object('reason', o.reason)
            WHEN 13 THEN jsonb_build_object('worker_id', o.worker)
            WHEN 15 THEN '{}'
            ELSE under.data || jsonb_build_object('error', nullif(e.message, ''), 'reason', o.reason)
        END
    WHERE e.type NOT IN (3, 14) AND (e.type <> 2 OR e.lease <> '')
) AS v;

-- Matching
--
-- The jobs of the queue "matching", which is the one that servers hold rounds over. Instants
-- are seconds since 1970, as in the document.

-- The present: the policy in force, which is the one that was put or else the one
-- that servers were configured with, the time as far as the database knows it, and
-- the epoch.
CREATE VIEW gq.matching_now AS
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

-- The terms of a job. 4 and 5 are the presets of the two kinds, of which nothing
-- else is written.
CREATE FUNCTION gq.matching_terms(
    preset smallint, INOUT lease_ttl bigint, INOUT lifetime bigint, INOUT run_lifetime bigint, INOUT renew_by_ppb bigint
) LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT
        coalesce(lease_ttl, CASE preset WHEN 4 THEN 600000000000 WHEN 5 THEN 180000000000 END),
        coalesce(lifetime, CASE preset WHEN 4 THEN 86400000000000 WHEN 5 THEN 7200000000000 END),
        coalesce(run_lifetime, CASE WHEN preset IN (4, 5) THEN 21600000000000 END),
        coalesce(renew_by_ppb, CASE WHEN preset IN (4, 5) THEN 600000000 END)
$$;

-- What a job asks for beyond the fields of a spec, which lies in attributes piece
-- by piece. NULL where it is not what the face writes: such a job takes part in no
-- round.
CREATE FUNCTION gq.read_asks(attributes jsonb, OUT spec jsonb, OUT size_bytes bigint)
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    pieces text := '';
    n      integer := 0;
    asks   jsonb;
BEGIN
    WHILE attributes ? ('matching.' || n) LOOP
        pieces := pieces || (attributes ->> ('matching.' || n));
        n := n + 1;
    END LOOP;
    asks := pieces::jsonb;
    size_bytes := coalesce((asks ->> 'size_bytes')::bigint, 0);
    IF jsonb_typeof(asks) = 'object' AND size_bytes BETWEEN 0 AND 9007199254740991 THEN
        spec := coalesce(asks -> 'spec', '{}');
    END IF;
EXCEPTION WHEN OTHERS THEN
    spec := NULL;
END $$;

-- The part of a job's score that does not depend on the time, in the integers of
-- package match: parts per billion, every quotient rounded down.
CREATE FUNCTION gq.matching_priority(weights jsonb, max_fee bigint, size_bytes bigint, tier text, enqueued bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN (weights ->> 'w_fee_ppb')::bigint * least(max_fee, (weights ->> 'fee_ref')::bigint) / (weights ->> 'fee_ref')::bigint
    + (weights ->> 'w_size_ppb')::bigint * (weights ->> 'size_ref_bytes')::bigint / ((weights ->> 'size_ref_bytes')::bigint + size_bytes)
    + (weights ->> 'w_tier_ppb')::bigint * coalesce((weights -> 'tiers' ->> tier)::bigint, 0) / 1000000000
    - (weights ->> 'w_age_ppb')::bigint * enqueued / (weights ->> 'age_ref_secs')::bigint;

-- The faults that count as attempts, by the codes that events have.
CREATE FUNCTION gq.matching_fault(code text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN coalesce(code IN ('ack_timeout', 'lease_expired', 'proof_invalid', 'provider_fail'), false);

-- The jobs of the queue as they stand, and their terms. One that ended longer ago
-- than the horizon is not told of.
CREATE VIEW gq.matching_job AS
SELECT r.seq, r.data, j.type AS kind, j.spec, s.*, w.policy,
    t.lease_ttl AS length, t.lifetime AS life, t.run_lifetime AS run_life, t.renew_by_ppb AS renew_by
FROM gq.job_now AS r
JOIN gq.job AS j USING (seq)
CROSS JOIN LATERAL gq.read_state(r.data) AS s
CROSS JOIN LATERAL gq.matching_terms(s.preset, s.lease_ttl, s.lifetime, s.run_lifetime, s.renew_by_ppb) AS t
CROSS JOIN gq.matching_now AS w
WHERE r.queue = 'matching' AND j.type IN ('AI', 'QUANTUM')
    AND (s.status < 7 OR w.policy IS NULL OR s.completed + (w.policy -> 'ttl' ->> 'gc_horizon_secs')::bigint * 1000000000 > w.now);

CREATE VIEW gq.jobs AS
SELECT
    m.id, m.kind, a.spec,
    CASE
        WHEN m.status IN (4, 5) THEN 'ASSIGNED' WHEN m.status = 7 THEN 'COMPLETED' WHEN m.status = 8 THEN 'FAILED'
        WHEN m.status = 9 THEN 'EXPIRED' WHEN m.status = 10 THEN 'CANCELLED' ELSE 'QUEUED'
    END AS state,
    gq.matching_priority(m.policy -> 'priority', coalesce(x.max_fee, 0), a.size_bytes, t.tier, t.enqueued) AS priority_cache,
    t.enqueued AS enqueue_ts, m.faults AS attempts, m.life / 1000000000 AS ttl_abs,
    (m.first_started + m.run_life) / 1000000000 AS ttl_rel_deadline,
    coalesce(x.requester, '') AS requester, a.size_bytes, coalesce(x.max_fee, 0) AS max_fee, t.tier,
    CASE WHEN gq.matching_fault(m.code) THEN upper(m.code) ELSE nullif(m.code, '') END AS last_error,
    m.status >= 7 AS tombstoned
FROM gq.matching_job AS m
CROSS JOIN LATERAL gq.read_spec(m.spec) AS x
CROSS JOIN LATERAL gq.read_asks(x.attributes) AS a
CROSS JOIN LATERAL (SELECT coalesce(nullif(x.tier, ''), 'FREE') AS tier, m.created / 1000000000 AS enqueued) AS t
WHERE a.spec IS NOT NULL;

-- The jobs in the order in which rounds take them. The index that a round uses is
-- in the memory of the server that holds it; this is its order.
CREATE VIEW gq.job_index AS
SELECT j.kind, j.state, j.priority_cache
FROM gq.jobs AS j
ORDER BY j.kind, j.state, j.priority_cache DESC, j.enqueue_ts, j.id::text COLLATE "C";

-- All leases of these jobs. Events are read whether or not they have their numbers yet, so
-- that a lease is there with the commit of its round.
CREATE FUNCTION gq.matching_leases() RETURNS TABLE (
    id text, job_id uuid, provider_id text, attempt bigint, t_start bigint, t_deadline bigint, renew_by bigint, status text
) LANGUAGE sql STABLE SET enable_nestloop = off SET jit = off AS $$
    WITH job AS MATERIALIZED (
        SELECT m.id, m.data, m.length, m.renew_by FROM gq.matching_job AS m
    ), told AS MATERIALIZED ( -- each segment read once
        SELECT e.job, row_number() OVER (PARTITION BY e.job ORDER BY n.id, e.seq) AS n, s.time, e.type, e.lease, e.lease_state, e.worker, e.until, e.code
        FROM (SELECT DISTINCT unnest((gq.read_segments(j.data)).ids) AS id FROM job AS j) AS n
        JOIN gq.segment AS s USING (id)
        JOIN gq.log AS l USING (id)
        CROSS JOIN LATERAL gq.read_log(coalesce(s.seq, 0), l.data) AS e
        WHERE e.queue = 'matching'
    ), counted AS (
        SELECT t.*, count(*) FILTER (WHERE gq.matching_fault(t.code)) OVER (
            PARTITION BY t.job ORDER BY t.n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS faults
        FROM told AS t
    ), ended AS (
        SELECT DISTINCT ON (t.job, t.lease) t.job, t.lease, t.n, t.type, t.code
        FROM told AS t
        WHERE t.lease <> '' AND t.lease_state > 1
        ORDER BY t.job, t.lease, t.n
    ), moved AS ( -- acknowledgement and renewals move the deadline on
        SELECT t.job, t.lease, max(t.until) AS until, count(*) FILTER (WHERE t.type = 14) AS renewals
        FROM told AS t
        LEFT JOIN ended AS x USING (job, lease)
        WHERE t.type IN (6, 14) AND (x.n IS NULL OR t.n < x.n)
        GROUP BY t.job, t.lease
    ), lease AS (
        SELECT
            c.lease AS id, c.job, c.worker AS provider, c.faults AS attempt, c.time AS started, m.length, m.renew_by,
            coalesce(g.until, c.time + m.length) AS deadline,
            CASE
                WHEN x.n IS NULL THEN CASE WHEN g.renewals > 0 THEN 'RENEWED' ELSE 'ACTIVE' END
                WHEN x.code = 'lease_expired' THEN 'EXPIRED'
                WHEN x.type = 7 AND NOT gq.matching_fault(x.code) THEN 'COMPLETED'
                ELSE 'CANCELLED'
            END AS status
        FROM counted AS c
        JOIN job AS m ON m.id = c.job
        LEFT JOIN ended AS x ON x.job = c.job AND x.lease = c.lease
        LEFT JOIN moved AS g ON g.job = c.job AND g.lease = c.lease
        WHERE c.type = 4 AND c.lease <> ''
    )
    SELECT
        l.id, l.job, l.provider, l.attempt, l.started / 1000000000, l.deadline / 1000000000,
        (l.deadline - (l.length - (l.length / 1000000000 * l.renew_by + l.length % 1000000000 * l.renew_by / 1000000000))) / 1000000000,
        l.status
    FROM lease AS l
$$;

CREATE VIEW gq.leases AS SELECT * FROM gq.matching_leases();

-- What providers hold and were given. Units are those of the epoch that windows
-- names; pauses are as the last commit of a round or of the provider has them.
CREATE VIEW gq.provider_quotas AS
SELECT
    p.name AS provider_id, coalesce(h.leases, 0) AS leases_active,
    jsonb_build_object(
        'AI', coalesce(CASE WHEN e.same THEN (b.ledger ->> 'ai_units_used')::bigint END, 0),
        'QUANTUM', coalesce(CASE WHEN e.same THEN (b.ledger ->> 'quantum_units_used')::bigint END, 0)
    ) AS units_epoch_used,
    jsonb_build_object('epoch_id', w.epoch, 'cooldown_until', coalesce(b.ledger -> 'cooldown_until', '{}')) AS windows
FROM gq.doc AS p
CROSS JOIN gq.matching_now AS w
LEFT JOIN LATERAL (
    SELECT gq.read_json(d.data) AS ledger FROM gq.doc AS d WHERE d.kind = 'matching.ledger' AND d.name = p.name
) AS b ON true
CROSS JOIN LATERAL (SELECT (b.ledger ->> 'epoch_id')::bigint = w.epoch AS same) AS e
LEFT JOIN (
    SELECT s.worker, count(*) AS leases
    FROM gq.held AS r
    CROSS JOIN LATERAL gq.read_state(r.data) AS s
    WHERE r.queue = 'matching'
    GROUP BY s.worker
) AS h ON h.worker = p.name
WHERE p.kind = 'matching.provider';

INSERT INTO gq.migration (version) VALUES (1);
