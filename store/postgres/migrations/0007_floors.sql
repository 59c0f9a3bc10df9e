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

-- Views that read each part of the log once.
--
-- gq.leases and gq.scheduler_lease_runs decoded all events of a commit once for
-- every job in it, and fetched the commit's bytes anew for every byte they looked
-- at. They decode each commit once now, from bytes that were fetched once, and with
-- expressions where there were queries.

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

CREATE OR REPLACE FUNCTION gq.read_policy(
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

CREATE OR REPLACE FUNCTION gq.read_segments(b bytea, OUT at integer, OUT ids bigint[])
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

CREATE OR REPLACE FUNCTION gq.read_state(
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

CREATE OR REPLACE FUNCTION gq.read_log(first bigint, b bytea) RETURNS TABLE (
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

-- The queues whose jobs are the scheduler's: those that share its pool.
CREATE VIEW gq.scheduler_addon AS
SELECT q.name FROM gq.queue AS q WHERE q.config ->> 'Pool' = 'scheduler';

CREATE OR REPLACE VIEW gq.scheduler_job_runs AS
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

DROP VIEW gq.scheduler_lease_runs;
CREATE VIEW gq.scheduler_lease_runs AS SELECT * FROM gq.scheduler_leases();

-- All leases of the jobs of matching. Events are read whether or not they have their
-- numbers yet, so that a lease is there with the commit of its round.
DROP VIEW gq.leases;
DROP FUNCTION gq.matching_leases(bytea, uuid, bigint);

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

INSERT INTO gq.migration (version) VALUES (7);
