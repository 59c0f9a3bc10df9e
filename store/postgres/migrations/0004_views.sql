-- Layout 4: what the faces tell, as views for those who read with SQL.
--
-- Specs, states and events are in the binary form of package gq. The functions
-- here read as much of it as the views need; they are for reports, not for
-- workers. A row of a view is there with the commit of what it tells of, except
-- that an event is listed once it has its number.

-- The readers take the bytes and a position, and return the next position.
CREATE FUNCTION gq.read_uvarint(b bytea, INOUT at integer, OUT value bigint)
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    shift integer := 0;
    byte  integer;
BEGIN
    value := 0;
    LOOP
        byte := get_byte(b, at);
        at := at + 1;
        value := value | ((byte & 127)::bigint << shift);
        EXIT WHEN byte < 128;
        shift := shift + 7;
    END LOOP;
END $$;

CREATE FUNCTION gq.read_varint(b bytea, INOUT at integer, OUT value bigint)
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    SELECT r.at, r.value INTO at, value FROM gq.read_uvarint(b, at) AS r;
    value := CASE WHEN value & 1 = 1 THEN ~((value >> 1) & 9223372036854775807) ELSE (value >> 1) & 9223372036854775807 END;
END $$;

CREATE FUNCTION gq.read_fixed(b bytea, INOUT at integer, OUT value bigint)
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    value := ('x' || encode(substring(b FROM at + 1 FOR 8), 'hex'))::bit(64)::bigint;
    at := at + 8;
END $$;

CREATE FUNCTION gq.read_text(b bytea, INOUT at integer, OUT value text)
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    size bigint;
BEGIN
    SELECT r.at, r.value INTO at, size FROM gq.read_uvarint(b, at) AS r;
    value := convert_from(substring(b FROM at + 1 FOR size::integer), 'UTF8');
    at := at + size;
END $$;

CREATE FUNCTION gq.read_lease(b bytea, INOUT at integer, OUT value text)
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    at := at + 1;
    IF get_byte(b, at - 1) = 1 THEN
        value := encode(substring(b FROM at + 1 FOR 16), 'hex')::uuid::text;
        at := at + 16;
    ELSE
        SELECT r.at, r.value INTO at, value FROM gq.read_text(b, at) AS r;
    END IF;
END $$;

-- A policy; of one that is its preset nothing but the preset is written, which the
-- view of presets has.
CREATE FUNCTION gq.read_policy(
    b bytea, INOUT at integer, OUT preset smallint,
    OUT lease_ttl bigint, OUT lifetime bigint, OUT run_lifetime bigint, OUT renew_by_ppb bigint
) LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    n    bigint;
    name text;
BEGIN
    preset := get_byte(b, at);
    at := at + 2;
    IF get_byte(b, at - 1) = 0 THEN
        RETURN;
    END IF;
    at := at + 5 + 8; -- rules, and the multiplier of the backoff
    SELECT r.at, r.value INTO at, name FROM gq.read_text(b, at) AS r;
    FOR i IN 1 .. 13 LOOP
        SELECT r.at, r.value INTO at, n FROM gq.read_varint(b, at) AS r;
        CASE i
            WHEN 3 THEN lease_ttl := n;
            WHEN 6 THEN lifetime := n;
            WHEN 7 THEN run_lifetime := n;
            WHEN 12 THEN renew_by_ppb := n;
            ELSE NULL;
        END CASE;
    END LOOP;
END $$;

-- The segments that tell of a job, which come before its state.
CREATE FUNCTION gq.read_segments(b bytea, OUT at integer, OUT ids bigint[])
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    many bigint;
    n    bigint;
    last bigint := 0;
BEGIN
    ids := '{}';
    SELECT r.at, r.value INTO at, many FROM gq.read_uvarint(b, 0) AS r;
    FOR i IN 1 .. many LOOP
        SELECT r.at, r.value INTO at, n FROM gq.read_uvarint(b, at) AS r;
        last := last + n;
        ids := ids || last;
    END LOOP;
END $$;

-- gq.State, as far as it is told. Instants are nanoseconds since 1970.
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
    skip text;
BEGIN
    SELECT r.at INTO at FROM gq.read_segments(b) AS r;
    IF get_byte(b, at) <> 1 THEN
        RAISE EXCEPTION 'a state of version %, these views know 1', get_byte(b, at);
    END IF;
    status := get_byte(b, at + 1);
    detail := get_byte(b, at + 2) >> 4;
    priority := get_byte(b, at + 2) & 15;
    SELECT r.at, r.value INTO at, has FROM gq.read_uvarint(b, at + 3) AS r;
    id := encode(substring(b FROM at + 1 FOR 16), 'hex')::uuid;
    SELECT r.at, r.preset, r.lease_ttl, r.lifetime, r.run_lifetime, r.renew_by_ppb
        INTO at, preset, lease_ttl, lifetime, run_lifetime, renew_by_ppb FROM gq.read_policy(b, at + 16) AS r;
    SELECT r.at, r.value INTO at, created FROM gq.read_fixed(b, at) AS r;
    SELECT r.at INTO at FROM gq.read_varint(b, at) AS r; -- updated
    SELECT r.at INTO at FROM gq.read_uvarint(b, at) AS r; -- depth
    IF has & 32768 <> 0 THEN -- turn
        SELECT r.at INTO at FROM gq.read_uvarint(b, at) AS r;
    END IF;
    IF has & 1 <> 0 THEN -- inherited priority
        at := at + 1;
    END IF;
    IF has & 2 <> 0 THEN -- waits
        SELECT r.at INTO at FROM gq.read_uvarint(b, at) AS r;
    END IF;
    attempt := 0;
    faults := 0;
    IF has & 4 <> 0 THEN
        SELECT r.at, r.value INTO at, attempt FROM gq.read_uvarint(b, at) AS r;
        SELECT r.at INTO at FROM gq.read_uvarint(b, at) AS r; -- bound
        SELECT r.at, r.value INTO at, faults FROM gq.read_uvarint(b, at) AS r;
        SELECT r.at INTO at FROM gq.read_uvarint(b, at) AS r; -- losses
        SELECT r.at INTO at FROM gq.read_uvarint(b, at) AS r; -- version
    END IF;
    IF has & 8 <> 0 THEN -- run at
        SELECT r.at INTO at FROM gq.read_varint(b, at) AS r;
    END IF;
    IF has & 16 <> 0 THEN -- scheduled at
        SELECT r.at INTO at FROM gq.read_varint(b, at) AS r;
    END IF;
    IF has & 32 <> 0 THEN
        SELECT r.at, created + r.value INTO at, started FROM gq.read_varint(b, at) AS r;
        SELECT r.at, created + r.value INTO at, first_started FROM gq.read_varint(b, at) AS r;
    END IF;
    IF has & 65536 <> 0 THEN -- it was leased and never started
        SELECT r.at, created + r.value INTO at, first_started FROM gq.read_varint(b, at) AS r;
    END IF;
    IF has & 64 <> 0 THEN
        SELECT r.at, created + r.value INTO at, completed FROM gq.read_varint(b, at) AS r;
    END IF;
    IF has & 128 <> 0 THEN
        SELECT r.at, r.value INTO at, lease FROM gq.read_lease(b, at) AS r;
        SELECT r.at INTO at FROM gq.read_uvarint(b, at) AS r; -- version
        lease_state := get_byte(b, at);
        SELECT r.at, r.value INTO at, worker FROM gq.read_text(b, at + 1) AS r;
        SELECT r.at, r.value INTO at, lease_attempt FROM gq.read_uvarint(b, at) AS r;
        SELECT r.at INTO at FROM gq.read_lease(b, at) AS r; -- the one before
        SELECT r.at, created + r.value INTO at, granted FROM gq.read_varint(b, at) AS r;
        SELECT r.at, granted + r.value INTO at, beat FROM gq.read_varint(b, at) AS r;
        SELECT r.at, beat + r.value INTO at, expires FROM gq.read_varint(b, at) AS r;
        SELECT r.at, r.value INTO at, ttl FROM gq.read_varint(b, at) AS r;
        SELECT r.at, r.value INTO at, renewals FROM gq.read_uvarint(b, at) AS r;
        SELECT r.at, r.value INTO at, cost FROM gq.read_uvarint(b, at) AS r;
        at := at + 8; -- digest of the settlement
    END IF;
    IF has & 256 <> 0 THEN -- the settlement before
        SELECT r.at + 8 INTO at FROM gq.read_lease(b, at) AS r;
    END IF;
    IF has & 512 <> 0 THEN -- progress and note
        SELECT r.at INTO at FROM gq.read_text(b, at + 8) AS r;
    END IF;
    IF has & 1024 <> 0 THEN
        category := get_byte(b, at);
        SELECT r.at, r.value INTO at, code FROM gq.read_text(b, at + 1) AS r;
        SELECT r.at, r.value INTO at, message FROM gq.read_text(b, at) AS r;
        SELECT r.at INTO at FROM gq.read_varint(b, at) AS r; -- retry after
    END IF;
    IF has & 2048 <> 0 THEN -- cancellation
        FOR i IN 1 .. 3 LOOP
            at := at + CASE get_byte(b, at) WHEN 1 THEN 9 ELSE 1 END;
        END LOOP;
        SELECT r.at, r.value INTO at, skip FROM gq.read_text(b, at) AS r;
    END IF;
    IF has & 4096 <> 0 THEN
        SELECT r.at, r.value INTO at, reason FROM gq.read_text(b, at) AS r;
    END IF;
END $$;

-- gq.Spec, as far as it is told and has no column.
CREATE FUNCTION gq.read_spec(
    b bytea, OUT priority smallint, OUT requester text, OUT tier text, OUT max_fee bigint, OUT attributes jsonb
) LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    at    integer;
    has   bigint;
    many  bigint;
    name  text;
    value text;
BEGIN
    IF get_byte(b, 0) <> 1 THEN
        RAISE EXCEPTION 'a spec of version %, these views know 1', get_byte(b, 0);
    END IF;
    SELECT r.at, r.value INTO at, has FROM gq.read_uvarint(b, 1) AS r;
    SELECT r.at INTO at FROM gq.read_text(b, at + 16) AS r; -- queue
    SELECT r.at INTO at FROM gq.read_text(b, at) AS r; -- type
    SELECT r.at INTO at FROM gq.read_policy(b, at) AS r;
    priority := get_byte(b, at);
    at := at + 2;
    IF get_byte(b, at - 1) = 0 THEN -- content type
        SELECT r.at INTO at FROM gq.read_text(b, at) AS r;
    END IF;
    IF has & 1 <> 0 THEN -- key
        SELECT r.at INTO at FROM gq.read_uvarint(b, at) AS u, LATERAL (SELECT u.at + u.value::integer AS at) AS r;
        SELECT r.at INTO at FROM gq.read_uvarint(b, at) AS u, LATERAL (SELECT u.at + u.value::integer + 8 AS at) AS r;
    END IF;
    IF has & 2 <> 0 THEN -- first run
        at := at + 8;
    END IF;
    IF has & 512 <> 0 THEN -- delay
        SELECT r.at INTO at FROM gq.read_uvarint(b, at) AS r;
    END IF;
    IF has & 4 <> 0 THEN -- dependencies
        SELECT r.at + 17 * r.value::integer INTO at FROM gq.read_uvarint(b, at) AS r;
    END IF;
    IF has & 8 <> 0 THEN -- cost
        SELECT r.at INTO at FROM gq.read_uvarint(b, at) AS r;
    END IF;
    IF has & 16 <> 0 THEN -- requires
        SELECT r.at, r.value INTO at, many FROM gq.read_uvarint(b, at) AS r;
        FOR i IN 1 .. many LOOP
            SELECT r.at INTO at FROM gq.read_text(b, at) AS r;
        END LOOP;
    END IF;
    IF has & 32 <> 0 THEN
        SELECT r.at, r.value INTO at, requester FROM gq.read_text(b, at) AS r;
        SELECT r.at, r.value INTO at, tier FROM gq.read_text(b, at) AS r;
        SELECT r.at, r.value INTO at, max_fee FROM gq.read_uvarint(b, at) AS r;
    END IF;
    IF has & 1024 <> 0 THEN -- limit key and fair key
        SELECT r.at INTO at FROM gq.read_text(b, at) AS r;
        SELECT r.at INTO at FROM gq.read_text(b, at) AS r;
    END IF;
    attributes := '{}';
    IF has & 64 <> 0 THEN
        SELECT r.at, r.value INTO at, many FROM gq.read_uvarint(b, at) AS r;
        FOR i IN 1 .. many LOOP
            SELECT r.at, r.value INTO at, name FROM gq.read_text(b, at) AS r;
            SELECT r.at, r.value INTO at, value FROM gq.read_text(b, at) AS r;
            attributes := attributes || jsonb_build_object(name, value);
        END LOOP;
    END IF;
END $$;

-- The events of a segment whose first has the number first.
CREATE FUNCTION gq.read_log(first bigint, b bytea) RETURNS TABLE (
    seq bigint, job uuid, queue text, type smallint, status smallint, attempt bigint, lease text, lease_state smallint, worker text,
    until bigint, detail smallint, category smallint, code text, message text, reason text, cost bigint, beat bigint
) LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE ROWS 10 AS $$
DECLARE
    at   integer := 0;
    size bigint;
    has  integer;
    next bigint := first;
BEGIN
    queue := '';
    WHILE at < length(b) LOOP
        job := encode(substring(b FROM at + 1 FOR 16), 'hex')::uuid;
        SELECT r.at, r.value INTO at, size FROM gq.read_uvarint(b, at + 16) AS r;
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
        SELECT r.at, r.value INTO at, attempt FROM gq.read_uvarint(b, at + 3) AS r;
        lease := ''; lease_state := 0; worker := ''; until := NULL; detail := 0;
        category := NULL; code := NULL; message := NULL; reason := ''; cost := 0; beat := NULL;
        IF has & 1 <> 0 THEN
            SELECT r.at, r.value INTO at, lease FROM gq.read_lease(b, at) AS r;
            SELECT r.at INTO at FROM gq.read_uvarint(b, at) AS r; -- version
            lease_state := get_byte(b, at);
            SELECT r.at, r.value INTO at, worker FROM gq.read_text(b, at + 1) AS r;
        END IF;
        IF has & 2 <> 0 THEN
            SELECT r.at, r.value INTO at, until FROM gq.read_fixed(b, at) AS r;
        END IF;
        IF has & 4 <> 0 THEN
            detail := get_byte(b, at);
            at := at + 1;
        END IF;
        IF has & 8 <> 0 THEN
            category := get_byte(b, at);
            SELECT r.at, r.value INTO at, code FROM gq.read_text(b, at + 1) AS r;
            SELECT r.at, r.value INTO at, message FROM gq.read_text(b, at) AS r;
            SELECT r.at INTO at FROM gq.read_varint(b, at) AS r; -- retry after
        END IF;
        IF has & 16 <> 0 THEN
            SELECT r.at, r.value INTO at, reason FROM gq.read_text(b, at) AS r;
        END IF;
        IF has & 32 <> 0 THEN
            SELECT r.at, r.value INTO at, cost FROM gq.read_uvarint(b, at) AS r;
        END IF;
        IF has & 64 <> 0 THEN
            SELECT r.at, r.value INTO at, beat FROM gq.read_fixed(b, at) AS r;
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

CREATE VIEW gq.job_now AS
SELECT l.seq, l.queue, l.data FROM gq.live AS l
UNION ALL
SELECT s.seq, s.queue, s.data
FROM gq.done AS s
WHERE NOT EXISTS (SELECT FROM gq.horizon AS h WHERE h.status = s.status AND (h.ended, h.seq) >= (s.ended, s.seq));

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
) AS w ON true;

CREATE VIEW gq.scheduler_lease_runs AS
SELECT
    e.lease AS lease_id, s.id AS job_id, r.queue AS addon_id, l.cost AS cost_units, (l.ttl + 999999999) / 1000000000 AS ttl_sec,
    gq.instant(l.granted) AS granted_at, gq.instant(l.beat) AS last_heartbeat_at,
    CASE WHEN l.state IN (2, 4) THEN gq.instant(x.time) END AS released_at,
    gq.instant(l.expires) AS expires_at,
    CASE l.state WHEN 1 THEN 'ACTIVE' WHEN 3 THEN 'EXPIRED' ELSE 'RELEASED' END AS state,
    CASE
        WHEN l.state NOT IN (2, 4) OR x.status < 7 THEN NULL
        WHEN s.status = 7 THEN 'SUCCEEDED'
        ELSE gq.scheduler_state(s.status, s.detail, s.category)
    END AS release_status
FROM gq.job_now AS r
CROSS JOIN LATERAL gq.read_state(r.data) AS s
CROSS JOIN LATERAL gq.history(r.data, s.id) AS e
LEFT JOIN LATERAL (
    SELECT o.time, o.status, o.lease_state, o.beat
    FROM gq.history(r.data, s.id) AS o
    WHERE o.lease = e.lease AND o.seq > e.seq AND gq.ends_run(o.type, o.lease_state, o.code)
    ORDER BY o.seq
    LIMIT 1
) AS x ON true
CROSS JOIN LATERAL (
    SELECT
        CASE WHEN s.lease = e.lease THEN s.cost ELSE e.cost END AS cost,
        CASE WHEN s.lease = e.lease THEN s.ttl ELSE e.until - e.time END AS ttl,
        CASE WHEN s.lease = e.lease THEN s.granted ELSE e.time END AS granted,
        CASE WHEN s.lease = e.lease THEN s.beat ELSE coalesce(x.beat, e.time) END AS beat,
        CASE WHEN s.lease = e.lease THEN s.expires ELSE coalesce(x.beat + e.until - e.time, e.until) END AS expires,
        CASE WHEN s.lease = e.lease THEN s.lease_state ELSE coalesce(x.lease_state, 1) END AS state
) AS l
WHERE e.type = 6;

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

INSERT INTO gq.migration (version) VALUES (4);
