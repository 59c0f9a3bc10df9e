SELECT pg_catalog.set_config('search_path', '', false);
CREATE SCHEMA gq;
CREATE FUNCTION gq.ends_run(type smallint, lease_state smallint, code text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN (type = ANY (ARRAY[7, 8, 10])) THEN (lease_state > 1) WHEN (type = 9) THEN ((lease_state > 1) AND (code IS DISTINCT FROM 'ack_timeout'::text)) WHEN (type = 11) THEN (lease_state = ANY (ARRAY[2, 3])) ELSE false END;
CREATE FUNCTION gq.history(data bytea, of uuid) RETURNS TABLE(seq bigint, "time" bigint, type smallint, status smallint, attempt bigint, lease text, lease_state smallint, worker text, until bigint, code text, reason text, cost bigint, beat bigint)
    LANGUAGE sql STABLE STRICT
    AS $$
    SELECT e.seq, s.time, e.type, e.status, e.attempt, e.lease, e.lease_state, e.worker, e.until, e.code, e.reason, e.cost, e.beat
    FROM unnest((gq.read_segments(data)).ids) AS n (id)
    JOIN gq.segment AS s USING (id)
    JOIN gq.log AS l USING (id)
    CROSS JOIN LATERAL gq.read_log(s.seq, l.data) AS e
    WHERE s.seq IS NOT NULL AND e.job = of
    ORDER BY e.seq
$$;
CREATE FUNCTION gq.instant(nanoseconds bigint) RETURNS timestamp with time zone
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN ('1970-01-01 00:00:00+00'::timestamp with time zone + (((nanoseconds / 1000))::double precision * '00:00:00.000001'::interval));
CREATE FUNCTION gq.matching_fault(code text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN COALESCE((code = ANY (ARRAY['ack_timeout'::text, 'lease_expired'::text, 'proof_invalid'::text, 'provider_fail'::text])), false);
CREATE FUNCTION gq.matching_leases(data bytea, of uuid, length bigint) RETURNS TABLE(id text, provider text, attempt bigint, started bigint, deadline bigint, status text)
    LANGUAGE sql STABLE STRICT
    AS $$
    WITH h AS MATERIALIZED (
        SELECT row_number() OVER (ORDER BY n.id, e.seq) AS n, s.time, e.type, e.lease, e.lease_state, e.worker, e.until, e.code
        FROM unnest((gq.read_segments(data)).ids) AS n (id)
        JOIN gq.segment AS s USING (id)
        JOIN gq.log AS l USING (id)
        CROSS JOIN LATERAL gq.read_log(coalesce(s.seq, 0), l.data) AS e
        WHERE e.job = of
    )
    SELECT
        c.lease, c.worker, (SELECT count(*) FROM h AS f WHERE f.n < c.n AND gq.matching_fault(f.code)),
        c.time, coalesce(g.until, c.time + length),
        CASE
            WHEN x.n IS NULL THEN CASE WHEN g.renewals > 0 THEN 'RENEWED' ELSE 'ACTIVE' END
            WHEN x.code = 'lease_expired' THEN 'EXPIRED'
            WHEN x.type = 7 AND NOT gq.matching_fault(x.code) THEN 'COMPLETED'
            ELSE 'CANCELLED'
        END
    FROM h AS c
    LEFT JOIN LATERAL (
        SELECT o.n, o.type, o.code FROM h AS o WHERE o.lease = c.lease AND o.lease_state > 1 ORDER BY o.n LIMIT 1
    ) AS x ON true
    CROSS JOIN LATERAL ( -- acknowledgement and renewals move the deadline on
        SELECT max(o.until) AS until, count(*) FILTER (WHERE o.type = 14) AS renewals
        FROM h AS o
        WHERE o.lease = c.lease AND o.type IN (6, 14) AND (x.n IS NULL OR o.n < x.n)
    ) AS g
    WHERE c.type = 4 AND c.lease <> ''
$$;
CREATE FUNCTION gq.matching_priority(weights jsonb, max_fee bigint, size_bytes bigint, tier text, enqueued bigint) RETURNS bigint
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN (((((((weights ->> 'w_fee_ppb'::text))::bigint * LEAST(max_fee, ((weights ->> 'fee_ref'::text))::bigint)) / ((weights ->> 'fee_ref'::text))::bigint) + ((((weights ->> 'w_size_ppb'::text))::bigint * ((weights ->> 'size_ref_bytes'::text))::bigint) / (((weights ->> 'size_ref_bytes'::text))::bigint + size_bytes))) + ((((weights ->> 'w_tier_ppb'::text))::bigint * COALESCE((((weights -> 'tiers'::text) ->> tier))::bigint, (0)::bigint)) / 1000000000)) - ((((weights ->> 'w_age_ppb'::text))::bigint * enqueued) / ((weights ->> 'age_ref_secs'::text))::bigint));
CREATE FUNCTION gq.matching_terms(preset smallint, INOUT lease_ttl bigint, INOUT lifetime bigint, INOUT run_lifetime bigint, INOUT renew_by_ppb bigint) RETURNS record
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT
        coalesce(lease_ttl, CASE preset WHEN 4 THEN 600000000000 WHEN 5 THEN 180000000000 END),
        coalesce(lifetime, CASE preset WHEN 4 THEN 86400000000000 WHEN 5 THEN 7200000000000 END),
        coalesce(run_lifetime, CASE WHEN preset IN (4, 5) THEN 21600000000000 END),
        coalesce(renew_by_ppb, CASE WHEN preset IN (4, 5) THEN 600000000 END)
$$;
CREATE FUNCTION gq.read_asks(attributes jsonb, OUT spec jsonb, OUT size_bytes bigint) RETURNS record
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
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
CREATE FUNCTION gq.read_fixed(b bytea, INOUT at integer, OUT value bigint) RETURNS record
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
BEGIN
    value := ('x' || encode(substring(b FROM at + 1 FOR 8), 'hex'))::bit(64)::bigint;
    at := at + 8;
END $$;
CREATE FUNCTION gq.read_json(b bytea) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
BEGIN
    RETURN convert_from(b, 'UTF8')::jsonb;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END $$;
CREATE FUNCTION gq.read_lease(b bytea, INOUT at integer, OUT value text) RETURNS record
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
BEGIN
    at := at + 1;
    IF get_byte(b, at - 1) = 1 THEN
        value := encode(substring(b FROM at + 1 FOR 16), 'hex')::uuid::text;
        at := at + 16;
    ELSE
        SELECT r.at, r.value INTO at, value FROM gq.read_text(b, at) AS r;
    END IF;
END $$;
CREATE FUNCTION gq.read_log(first bigint, b bytea) RETURNS TABLE(seq bigint, job uuid, queue text, type smallint, status smallint, attempt bigint, lease text, lease_state smallint, worker text, until bigint, detail smallint, category smallint, code text, message text, reason text, cost bigint, beat bigint)
    LANGUAGE plpgsql IMMUTABLE STRICT ROWS 10 PARALLEL SAFE
    AS $$
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
CREATE FUNCTION gq.read_policy(b bytea, INOUT at integer, OUT preset smallint, OUT lease_ttl bigint, OUT lifetime bigint, OUT run_lifetime bigint, OUT renew_by_ppb bigint) RETURNS record
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
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
CREATE FUNCTION gq.read_segments(b bytea, OUT at integer, OUT ids bigint[]) RETURNS record
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
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
CREATE FUNCTION gq.read_spec(b bytea, OUT priority smallint, OUT requester text, OUT tier text, OUT max_fee bigint, OUT attributes jsonb) RETURNS record
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
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
CREATE FUNCTION gq.read_state(b bytea, OUT id uuid, OUT status smallint, OUT detail smallint, OUT priority smallint, OUT preset smallint, OUT lease_ttl bigint, OUT lifetime bigint, OUT run_lifetime bigint, OUT renew_by_ppb bigint, OUT created bigint, OUT attempt bigint, OUT faults bigint, OUT started bigint, OUT first_started bigint, OUT completed bigint, OUT lease text, OUT lease_state smallint, OUT worker text, OUT lease_attempt bigint, OUT granted bigint, OUT beat bigint, OUT expires bigint, OUT ttl bigint, OUT renewals bigint, OUT cost bigint, OUT category smallint, OUT code text, OUT message text, OUT reason text) RETURNS record
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
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
CREATE FUNCTION gq.read_text(b bytea, INOUT at integer, OUT value text) RETURNS record
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
DECLARE
    size bigint;
BEGIN
    SELECT r.at, r.value INTO at, size FROM gq.read_uvarint(b, at) AS r;
    value := convert_from(substring(b FROM at + 1 FOR size::integer), 'UTF8');
    at := at + size;
END $$;
CREATE FUNCTION gq.read_uvarint(b bytea, INOUT at integer, OUT value bigint) RETURNS record
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
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
CREATE FUNCTION gq.read_varint(b bytea, INOUT at integer, OUT value bigint) RETURNS record
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
BEGIN
    SELECT r.at, r.value INTO at, value FROM gq.read_uvarint(b, at) AS r;
    value := CASE WHEN value & 1 = 1 THEN ~((value >> 1) & 9223372036854775807) ELSE (value >> 1) & 9223372036854775807 END;
END $$;
CREATE FUNCTION gq.scheduler_priority(priority smallint) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE priority WHEN 1 THEN 'URGENT'::text WHEN 2 THEN 'HIGH'::text WHEN 3 THEN 'NORMAL'::text ELSE 'LOW'::text END;
CREATE FUNCTION gq.scheduler_state(status smallint, detail smallint, category smallint) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN (status = ANY (ARRAY[1, 2, 3, 6])) THEN 'QUEUED'::text WHEN ((status = 4) AND (detail = 2)) THEN 'PREPARING'::text WHEN ((status = 4) AND (detail = 3)) THEN 'LEASE_PENDING'::text WHEN (status = 4) THEN 'CLAIMED'::text WHEN (status = 5) THEN 'RUNNING'::text WHEN (status = 7) THEN 'DONE'::text WHEN ((status = ANY (ARRAY[8, 9])) AND (category = 3)) THEN 'TIMEOUT'::text WHEN (status = ANY (ARRAY[8, 9])) THEN 'FAILED'::text ELSE 'CANCELED'::text END;
CREATE FUNCTION gq.stamp(nanoseconds bigint) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN (nanoseconds IS NULL) THEN '0001-01-01T00:00:00Z'::text ELSE ((to_char((gq.instant(nanoseconds) AT TIME ZONE 'UTC'::text), 'YYYY-MM-DD"T"HH24:MI:SS'::text) || rtrim(rtrim(('.'::text || lpad((((nanoseconds / 1000) % (1000000)::bigint))::text, 6, '0'::text)), '0'::text), '.'::text)) || 'Z'::text) END;
CREATE TABLE gq.blob (
    seq bigint NOT NULL,
    part smallint NOT NULL,
    data bytea NOT NULL
)
PARTITION BY RANGE (seq);
CREATE TABLE gq.blob_0 (
    seq bigint NOT NULL,
    part smallint NOT NULL,
    data bytea NOT NULL
);
CREATE TABLE gq.delta (
    queue text NOT NULL COLLATE pg_catalog."C",
    status smallint NOT NULL,
    jobs bigint NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_cost_delay='1');
CREATE TABLE gq.doc (
    kind text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    version bigint NOT NULL,
    data bytea NOT NULL
);
CREATE SEQUENCE gq.doc_version
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE TABLE gq.done (
    seq bigint NOT NULL,
    ended bigint NOT NULL,
    status smallint NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    fair text NOT NULL COLLATE pg_catalog."C",
    data bytea NOT NULL
)
PARTITION BY RANGE (seq);
CREATE TABLE gq.done_0 (
    seq bigint NOT NULL,
    ended bigint NOT NULL,
    status smallint NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    fair text NOT NULL COLLATE pg_catalog."C",
    data bytea NOT NULL
);
CREATE TABLE gq.edge (
    parent bigint NOT NULL,
    child bigint NOT NULL,
    kind smallint NOT NULL
);
CREATE TABLE gq.ended (
    parent bigint NOT NULL,
    status smallint NOT NULL,
    priority smallint NOT NULL
);
CREATE TABLE gq.log (
    id bigint NOT NULL,
    data bytea NOT NULL
)
PARTITION BY RANGE (id);
ALTER TABLE ONLY gq.log ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE TABLE gq.segment (
    id bigint NOT NULL,
    seq bigint,
    "time" bigint NOT NULL,
    events integer NOT NULL,
    token uuid NOT NULL
)
PARTITION BY RANGE (id);
CREATE VIEW gq.event AS
 SELECT e.seq,
    e.job,
    e.queue,
    e.type,
    e.status,
    e.attempt,
    e.lease,
    e.lease_state,
    e.worker,
    e.until,
    e.detail,
    e.category,
    e.code,
    e.message,
    e.reason,
    e.cost,
    e.beat,
    s."time"
   FROM ((gq.segment s
     JOIN gq.log l USING (id))
     CROSS JOIN LATERAL gq.read_log(s.seq, l.data) e(seq, job, queue, type, status, attempt, lease, lease_state, worker, until, detail, category, code, message, reason, cost, beat))
  WHERE (s.seq IS NOT NULL);
CREATE TABLE gq.head (
    one boolean DEFAULT true NOT NULL,
    event bigint DEFAULT 0 NOT NULL,
    gone bigint DEFAULT 0 NOT NULL,
    "time" bigint DEFAULT 0 NOT NULL,
    CONSTRAINT head_one_check CHECK (one)
)
WITH (fillfactor='10');
CREATE TABLE gq.held (
    seq bigint NOT NULL,
    due bigint,
    status smallint NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    limited text COLLATE pg_catalog."C",
    fair text NOT NULL COLLATE pg_catalog."C",
    data bytea NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_cost_delay='1');
CREATE TABLE gq.horizon (
    status smallint NOT NULL,
    ended bigint NOT NULL,
    seq bigint NOT NULL
)
WITH (fillfactor='10');
CREATE TABLE gq.idempotency (
    scope bytea NOT NULL,
    name bytea NOT NULL,
    fingerprint bigint NOT NULL,
    job uuid NOT NULL,
    seq bigint NOT NULL,
    expires bigint NOT NULL
);
CREATE TABLE gq.job (
    seq bigint NOT NULL,
    id uuid NOT NULL,
    cost bigint NOT NULL,
    created bigint NOT NULL,
    type text NOT NULL COLLATE pg_catalog."C",
    requires text[] NOT NULL COLLATE pg_catalog."C",
    spec bytea NOT NULL,
    payload bytea
)
PARTITION BY RANGE (seq);
CREATE TABLE gq.job_0 (
    seq bigint NOT NULL,
    id uuid NOT NULL,
    cost bigint NOT NULL,
    created bigint NOT NULL,
    type text NOT NULL COLLATE pg_catalog."C",
    requires text[] NOT NULL COLLATE pg_catalog."C",
    spec bytea NOT NULL,
    payload bytea
);
CREATE TABLE gq.ready (
    seq bigint NOT NULL,
    order_hi bigint NOT NULL,
    order_lo bigint NOT NULL,
    run_at bigint NOT NULL,
    due bigint,
    status smallint NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    limited text COLLATE pg_catalog."C",
    fair text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    data bytea NOT NULL,
    cost bigint NOT NULL,
    type text NOT NULL COLLATE pg_catalog."C",
    requires text[] COLLATE pg_catalog."C"
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_cost_delay='1');
CREATE VIEW gq.live AS
 SELECT ready.seq,
    ready.due,
    ready.status,
    ready.queue,
    ready.limited,
    ready.fair,
    ready.data
   FROM gq.ready
UNION ALL
 SELECT held.seq,
    held.due,
    held.status,
    held.queue,
    held.limited,
    held.fair,
    held.data
   FROM gq.held;
CREATE VIEW gq.job_now AS
 SELECT l.seq,
    l.queue,
    l.data
   FROM gq.live l
UNION ALL
 SELECT s.seq,
    s.queue,
    s.data
   FROM gq.done s
  WHERE (NOT (EXISTS ( SELECT
           FROM gq.horizon h
          WHERE ((h.status = s.status) AND (ROW(h.ended, h.seq) >= ROW(s.ended, s.seq))))));
CREATE VIEW gq.matching_now AS
 SELECT p.policy,
    t.now,
    COALESCE(((b.beacon ->> 'epoch_id'::text))::bigint, ((t.now / 1000000000) / (((p.policy -> 'seed'::text) ->> 'epoch_secs'::text))::bigint)) AS epoch
   FROM ((( SELECT GREATEST(h."time", (((EXTRACT(epoch FROM clock_timestamp()) * (1000000)::numeric))::bigint * 1000)) AS now
           FROM gq.head h) t
     LEFT JOIN ( SELECT gq.read_json(d.data) AS policy
           FROM gq.doc d
          WHERE ((d.kind = 'matching'::text) AND (d.name = ANY (ARRAY['settings'::text, 'configured'::text])))
          ORDER BY d.name DESC
         LIMIT 1) p ON (true))
     LEFT JOIN ( SELECT gq.read_json(d.data) AS beacon
           FROM gq.doc d
          WHERE ((d.kind = 'matching'::text) AND (d.name = 'beacon'::text))) b ON (true));
CREATE VIEW gq.matching_job AS
 SELECT r.seq,
    r.data,
    j.type AS kind,
    j.spec,
    s.id,
    s.status,
    s.detail,
    s.priority,
    s.preset,
    s.lease_ttl,
    s.lifetime,
    s.run_lifetime,
    s.renew_by_ppb,
    s.created,
    s.attempt,
    s.faults,
    s.started,
    s.first_started,
    s.completed,
    s.lease,
    s.lease_state,
    s.worker,
    s.lease_attempt,
    s.granted,
    s.beat,
    s.expires,
    s.ttl,
    s.renewals,
    s.cost,
    s.category,
    s.code,
    s.message,
    s.reason,
    w.policy,
    t.lease_ttl AS length,
    t.lifetime AS life,
    t.run_lifetime AS run_life,
    t.renew_by_ppb AS renew_by
   FROM ((((gq.job_now r
     JOIN gq.job j USING (seq))
     CROSS JOIN LATERAL gq.read_state(r.data) s(id, status, detail, priority, preset, lease_ttl, lifetime, run_lifetime, renew_by_ppb, created, attempt, faults, started, first_started, completed, lease, lease_state, worker, lease_attempt, granted, beat, expires, ttl, renewals, cost, category, code, message, reason))
     CROSS JOIN LATERAL gq.matching_terms(s.preset, s.lease_ttl, s.lifetime, s.run_lifetime, s.renew_by_ppb) t(lease_ttl, lifetime, run_lifetime, renew_by_ppb))
     CROSS JOIN gq.matching_now w)
  WHERE ((r.queue = 'matching'::text) AND (j.type = ANY (ARRAY['AI'::text, 'QUANTUM'::text])) AND ((s.status < 7) OR (w.policy IS NULL) OR ((s.completed + ((((w.policy -> 'ttl'::text) ->> 'gc_horizon_secs'::text))::bigint * 1000000000)) > w.now)));
CREATE VIEW gq.jobs AS
 SELECT m.id,
    m.kind,
    a.spec,
        CASE
            WHEN (m.status = ANY (ARRAY[4, 5])) THEN 'ASSIGNED'::text
            WHEN (m.status = 7) THEN 'COMPLETED'::text
            WHEN (m.status = 8) THEN 'FAILED'::text
            WHEN (m.status = 9) THEN 'EXPIRED'::text
            WHEN (m.status = 10) THEN 'CANCELLED'::text
            ELSE 'QUEUED'::text
        END AS state,
    gq.matching_priority((m.policy -> 'priority'::text), COALESCE(x.max_fee, (0)::bigint), a.size_bytes, t.tier, t.enqueued) AS priority_cache,
    t.enqueued AS enqueue_ts,
    m.faults AS attempts,
    (m.life / 1000000000) AS ttl_abs,
    ((m.first_started + m.run_life) / 1000000000) AS ttl_rel_deadline,
    COALESCE(x.requester, ''::text) AS requester,
    a.size_bytes,
    COALESCE(x.max_fee, (0)::bigint) AS max_fee,
    t.tier,
        CASE
            WHEN gq.matching_fault(m.code) THEN upper(m.code)
            ELSE NULLIF(m.code, ''::text)
        END AS last_error,
    (m.status >= 7) AS tombstoned
   FROM (((gq.matching_job m
     CROSS JOIN LATERAL gq.read_spec(m.spec) x(priority, requester, tier, max_fee, attributes))
     CROSS JOIN LATERAL gq.read_asks(x.attributes) a(spec, size_bytes))
     CROSS JOIN LATERAL ( SELECT COALESCE(NULLIF(x.tier, ''::text), 'FREE'::text) AS tier,
            (m.created / 1000000000) AS enqueued) t)
  WHERE (a.spec IS NOT NULL);
CREATE VIEW gq.job_index AS
 SELECT j.kind,
    j.state,
    j.priority_cache
   FROM gq.jobs j
  ORDER BY j.kind, j.state, j.priority_cache DESC, j.enqueue_ts, ((j.id)::text COLLATE "C");
CREATE TABLE gq.lease (
    id text NOT NULL COLLATE pg_catalog."C",
    seq bigint NOT NULL
);
CREATE VIEW gq.leases AS
 SELECT l.id,
    m.id AS job_id,
    l.provider AS provider_id,
    l.attempt,
    (l.started / 1000000000) AS t_start,
    (l.deadline / 1000000000) AS t_deadline,
    ((l.deadline - (m.length - (((m.length / 1000000000) * m.renew_by) + (((m.length % (1000000000)::bigint) * m.renew_by) / 1000000000)))) / 1000000000) AS renew_by,
    l.status
   FROM (gq.matching_job m
     CROSS JOIN LATERAL gq.matching_leases(m.data, m.id, m.length) l(id, provider, attempt, started, deadline, status));
CREATE TABLE gq.log_0 (
    id bigint NOT NULL,
    data bytea NOT NULL
);
ALTER TABLE ONLY gq.log_0 ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE TABLE gq.migration (
    version integer NOT NULL,
    applied_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
CREATE TABLE gq.name (
    id uuid NOT NULL,
    seq bigint NOT NULL
);
CREATE TABLE gq.partition (
    name text NOT NULL COLLATE pg_catalog."C",
    first bigint NOT NULL,
    past bigint NOT NULL,
    gone bigint DEFAULT 0 NOT NULL
);
CREATE TABLE gq.pool (
    name text NOT NULL COLLATE pg_catalog."C",
    capacity bigint NOT NULL,
    at_start boolean NOT NULL,
    updated bigint NOT NULL
);
CREATE VIEW gq.provider_quotas AS
 SELECT p.name AS provider_id,
    COALESCE(h.leases, (0)::bigint) AS leases_active,
    jsonb_build_object('AI', COALESCE(
        CASE
            WHEN e.same THEN ((b.books ->> 'ai_units_used'::text))::bigint
            ELSE NULL::bigint
        END, (0)::bigint), 'QUANTUM', COALESCE(
        CASE
            WHEN e.same THEN ((b.books ->> 'quantum_units_used'::text))::bigint
            ELSE NULL::bigint
        END, (0)::bigint)) AS units_epoch_used,
    jsonb_build_object('epoch_id', w.epoch, 'cooldown_until', COALESCE((b.books -> 'cooldown_until'::text), '{}'::jsonb)) AS windows
   FROM ((((gq.doc p
     CROSS JOIN gq.matching_now w)
     LEFT JOIN LATERAL ( SELECT gq.read_json(d.data) AS books
           FROM gq.doc d
          WHERE ((d.kind = 'matching.books'::text) AND (d.name = p.name))) b ON (true))
     CROSS JOIN LATERAL ( SELECT (((b.books ->> 'epoch_id'::text))::bigint = w.epoch) AS same) e)
     LEFT JOIN ( SELECT s.worker,
            count(*) AS leases
           FROM (gq.held r
             CROSS JOIN LATERAL gq.read_state(r.data) s(id, status, detail, priority, preset, lease_ttl, lifetime, run_lifetime, renew_by_ppb, created, attempt, faults, started, first_started, completed, lease, lease_state, worker, lease_attempt, granted, beat, expires, ttl, renewals, cost, category, code, message, reason))
          WHERE (r.queue = 'matching'::text)
          GROUP BY s.worker) h ON ((h.worker = p.name)))
  WHERE (p.kind = 'matching.provider'::text);
CREATE TABLE gq.queue (
    name text NOT NULL COLLATE pg_catalog."C",
    config jsonb,
    due bigint DEFAULT 0 NOT NULL,
    turns bigint[] DEFAULT '{0,0,0,0,0}'::bigint[] NOT NULL
);
CREATE VIEW gq.scheduler_events AS
 SELECT ((2 * e.seq) +
        CASE v.about
            WHEN 'JOB'::text THEN 1
            ELSE 0
        END) AS id,
    gq.instant(e."time") AS ts,
    v.about AS entity_type,
        CASE v.about
            WHEN 'JOB'::text THEN (e.job)::text
            ELSE e.lease
        END AS entity_id,
    v.name AS event_type,
    jsonb_strip_nulls(v.data) AS data_json
   FROM (((gq.event e
     CROSS JOIN LATERAL ( SELECT gq.ends_run(e.type, e.lease_state, e.code) AS over,
            NULLIF(e.worker, ''::text) AS worker,
            NULLIF(e.reason, ''::text) AS reason) o)
     CROSS JOIN LATERAL ( SELECT jsonb_build_object('worker_id', o.worker, 'lease_id',
                CASE
                    WHEN (o.over OR (e.type = 6)) THEN NULLIF(e.lease, ''::text)
                    ELSE NULL::text
                END) AS data) under)
     CROSS JOIN LATERAL ( SELECT 'LEASE'::text AS about,
                CASE
                    WHEN (e.lease_state = 3) THEN 'LEASE_EXPIRED'::text
                    ELSE 'LEASE_RELEASED'::text
                END AS name,
            jsonb_build_object('job_id', e.job, 'worker_id', o.worker, 'cost_units', e.cost) AS data
          WHERE o.over
        UNION ALL
         SELECT 'LEASE'::text,
            'LEASE_GRANTED'::text,
            jsonb_build_object('job_id', e.job, 'worker_id', o.worker, 'cost_units', e.cost, 'expires_at', gq.stamp(e.until)) AS jsonb_build_object
          WHERE (e.type = 6)
        UNION ALL
         SELECT 'LEASE'::text,
            'LEASE_RENEWED'::text,
            jsonb_build_object('job_id', e.job, 'worker_id', o.worker, 'expires_at', gq.stamp(e.until)) AS jsonb_build_object
          WHERE (e.type = 14)
        UNION ALL
         SELECT 'JOB'::text,
                CASE e.type
                    WHEN 1 THEN 'JOB_SUBMITTED'::text
                    WHEN 4 THEN 'JOB_CLAIMED'::text
                    WHEN 5 THEN ('JOB_'::text || gq.scheduler_state(e.status, e.detail, NULL::smallint))
                    WHEN 6 THEN 'JOB_RUNNING'::text
                    WHEN 7 THEN 'JOB_DONE'::text
                    WHEN 9 THEN 'JOB_REQUEUED'::text
                    WHEN 2 THEN 'JOB_REQUEUED'::text
                    WHEN 11 THEN 'JOB_CANCELED'::text
                    WHEN 12 THEN 'JOB_CANCEL_REQUESTED'::text
                    WHEN 13 THEN 'JOB_CANCEL_DELIVERED'::text
                    WHEN 15 THEN 'JOB_UPDATED'::text
                    ELSE ('JOB_'::text || gq.scheduler_state(e.status, (0)::smallint, e.category))
                END AS "case",
                CASE e.type
                    WHEN 1 THEN COALESCE(( SELECT jsonb_build_object('priority', gq.scheduler_priority((gq.read_spec(j.spec)).priority), 'addon_id', e.queue, 'job_type', NULLIF(j.type, ''::text), 'cost_units', j.cost) AS jsonb_build_object
                       FROM (gq.name n
                         JOIN gq.job j USING (seq))
                      WHERE (n.id = e.job)), '{}'::jsonb)
                    WHEN 4 THEN jsonb_build_object('worker_id', o.worker, 'claim_expires_at', gq.stamp(e.until))
                    WHEN 5 THEN jsonb_build_object('worker_id', o.worker)
                    WHEN 6 THEN (under.data || jsonb_build_object('attempt', e.attempt))
                    WHEN 7 THEN under.data
                    WHEN 9 THEN (under.data || jsonb_build_object('error', NULLIF(e.message, ''::text), 'next_retry_at', gq.stamp(e.until), 'reason', o.reason))
                    WHEN 2 THEN jsonb_build_object('worker_id', o.worker, 'reason', o.reason)
                    WHEN 11 THEN (under.data || jsonb_build_object('reason', o.reason))
                    WHEN 12 THEN jsonb_build_object('reason', o.reason)
                    WHEN 13 THEN jsonb_build_object('worker_id', o.worker)
                    WHEN 15 THEN '{}'::jsonb
                    ELSE (under.data || jsonb_build_object('error', NULLIF(e.message, ''::text), 'reason', o.reason))
                END AS "case"
          WHERE ((e.type <> ALL (ARRAY[3, 14])) AND ((e.type <> 2) OR (e.lease <> ''::text)))) v);
CREATE VIEW gq.scheduler_job_runs AS
 SELECT s.id AS job_id,
    r.queue AS addon_id,
    j.type AS job_type,
    gq.scheduler_priority(s.priority) AS priority,
    j.cost AS cost_units,
    gq.scheduler_state(s.status, s.detail, s.category) AS state,
    s.attempt AS attempts,
    gq.instant(s.created) AS created_at,
    gq.instant(s.started) AS started_at,
    gq.instant(s.completed) AS finished_at,
        CASE
            WHEN h.held THEN s.worker
            ELSE NULL::text
        END AS claimed_by,
        CASE
            WHEN (h.held AND (s.lease_attempt > 0)) THEN s.lease
            WHEN (s.attempt > 0) THEN ( SELECT e.lease
               FROM gq.history(r.data, s.id) e(seq, "time", type, status, attempt, lease, lease_state, worker, until, code, reason, cost, beat)
              WHERE (e.type = 6)
              ORDER BY e.seq DESC
             LIMIT 1)
            ELSE NULL::text
        END AS lease_id,
        CASE
            WHEN (s.status = 7) THEN 'SUCCEEDED'::text
            WHEN (s.status > 7) THEN gq.scheduler_state(s.status, s.detail, s.category)
            ELSE NULL::text
        END AS final_status,
        CASE
            WHEN (s.status > 7) THEN COALESCE((w.report ->> 'error'::text), NULLIF(s.message, ''::text), NULLIF(s.reason, ''::text))
            ELSE NULL::text
        END AS error_text,
        CASE
            WHEN (s.status >= 7) THEN NULLIF(
            CASE
                WHEN w.framed THEN (w.report -> 'result_data'::text)
                WHEN (w.report IS NULL) THEN to_jsonb(translate(encode(w.result, 'base64'::text), '
'::text, ''::text))
                ELSE w.report
            END, 'null'::jsonb)
            ELSE NULL::jsonb
        END AS result_json,
        CASE
            WHEN ((s.status >= 7) AND w.framed) THEN NULLIF((w.report -> 'metrics'::text), 'null'::jsonb)
            ELSE NULL::jsonb
        END AS metrics_json
   FROM ((((gq.job_now r
     JOIN gq.job j USING (seq))
     CROSS JOIN LATERAL gq.read_state(r.data) s(id, status, detail, priority, preset, lease_ttl, lifetime, run_lifetime, renew_by_ppb, created, attempt, faults, started, first_started, completed, lease, lease_state, worker, lease_attempt, granted, beat, expires, ttl, renewals, cost, category, code, message, reason))
     CROSS JOIN LATERAL ( SELECT ((s.lease IS NOT NULL) AND ((s.status = ANY (ARRAY[4, 5])) OR ((s.status >= 7) AND ((s.lease_attempt > 0) OR (s.lease_state = 4))))) AS held) h)
     LEFT JOIN LATERAL ( SELECT b.data AS result,
            p.report,
            ((p.report <> '{}'::jsonb) AND (jsonb_typeof(p.report) = 'object'::text) AND ((p.report - '{result_data,error,metrics}'::text[]) = '{}'::jsonb)) AS framed
           FROM gq.blob b,
            LATERAL ( SELECT gq.read_json(b.data) AS report) p
          WHERE ((b.seq = r.seq) AND (b.part = 2) AND (length(b.data) > 0))) w ON (true));
CREATE VIEW gq.scheduler_lease_runs AS
 SELECT e.lease AS lease_id,
    s.id AS job_id,
    r.queue AS addon_id,
    l.cost AS cost_units,
    ((l.ttl + 999999999) / 1000000000) AS ttl_sec,
    gq.instant(l.granted) AS granted_at,
    gq.instant(l.beat) AS last_heartbeat_at,
        CASE
            WHEN (l.state = ANY (ARRAY[2, 4])) THEN gq.instant(x."time")
            ELSE NULL::timestamp with time zone
        END AS released_at,
    gq.instant(l.expires) AS expires_at,
        CASE l.state
            WHEN 1 THEN 'ACTIVE'::text
            WHEN 3 THEN 'EXPIRED'::text
            ELSE 'RELEASED'::text
        END AS state,
        CASE
            WHEN ((l.state <> ALL (ARRAY[2, 4])) OR (x.status < 7)) THEN NULL::text
            WHEN (s.status = 7) THEN 'SUCCEEDED'::text
            ELSE gq.scheduler_state(s.status, s.detail, s.category)
        END AS release_status
   FROM ((((gq.job_now r
     CROSS JOIN LATERAL gq.read_state(r.data) s(id, status, detail, priority, preset, lease_ttl, lifetime, run_lifetime, renew_by_ppb, created, attempt, faults, started, first_started, completed, lease, lease_state, worker, lease_attempt, granted, beat, expires, ttl, renewals, cost, category, code, message, reason))
     CROSS JOIN LATERAL gq.history(r.data, s.id) e(seq, "time", type, status, attempt, lease, lease_state, worker, until, code, reason, cost, beat))
     LEFT JOIN LATERAL ( SELECT o."time",
            o.status,
            o.lease_state,
            o.beat
           FROM gq.history(r.data, s.id) o(seq, "time", type, status, attempt, lease, lease_state, worker, until, code, reason, cost, beat)
          WHERE ((o.lease = e.lease) AND (o.seq > e.seq) AND gq.ends_run(o.type, o.lease_state, o.code))
          ORDER BY o.seq
         LIMIT 1) x ON (true))
     CROSS JOIN LATERAL ( SELECT
                CASE
                    WHEN (s.lease = e.lease) THEN s.cost
                    ELSE e.cost
                END AS cost,
                CASE
                    WHEN (s.lease = e.lease) THEN s.ttl
                    ELSE (e.until - e."time")
                END AS ttl,
                CASE
                    WHEN (s.lease = e.lease) THEN s.granted
                    ELSE e."time"
                END AS granted,
                CASE
                    WHEN (s.lease = e.lease) THEN s.beat
                    ELSE COALESCE(x.beat, e."time")
                END AS beat,
                CASE
                    WHEN (s.lease = e.lease) THEN s.expires
                    ELSE COALESCE(((x.beat + e.until) - e."time"), e.until)
                END AS expires,
                CASE
                    WHEN (s.lease = e.lease) THEN (s.lease_state)::integer
                    ELSE COALESCE((x.lease_state)::integer, 1)
                END AS state) l)
  WHERE (e.type = 6);
CREATE TABLE gq.segment_0 (
    id bigint NOT NULL,
    seq bigint,
    "time" bigint NOT NULL,
    events integer NOT NULL,
    token uuid NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_cost_delay='1');
CREATE SEQUENCE gq.segment_id
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE SEQUENCE gq.submission
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE TABLE gq.tally (
    queue text NOT NULL COLLATE pg_catalog."C",
    status smallint NOT NULL,
    jobs bigint NOT NULL
)
WITH (fillfactor='50');
CREATE TABLE gq.turn (
    queue text NOT NULL COLLATE pg_catalog."C",
    level smallint NOT NULL,
    key text NOT NULL COLLATE pg_catalog."C",
    turn bigint NOT NULL
);
ALTER TABLE ONLY gq.blob ATTACH PARTITION gq.blob_0 FOR VALUES FROM (MINVALUE) TO ('89215060672512');
ALTER TABLE ONLY gq.done ATTACH PARTITION gq.done_0 FOR VALUES FROM (MINVALUE) TO ('89215060672512');
ALTER TABLE ONLY gq.job ATTACH PARTITION gq.job_0 FOR VALUES FROM (MINVALUE) TO ('89215060672512');
ALTER TABLE ONLY gq.log ATTACH PARTITION gq.log_0 FOR VALUES FROM (MINVALUE) TO ('89215060672512');
ALTER TABLE ONLY gq.segment ATTACH PARTITION gq.segment_0 FOR VALUES FROM (MINVALUE) TO ('89215060672512');
INSERT INTO gq.blob_0 VALUES (89154931130369, 2, '\x0002');
INSERT INTO gq.blob_0 VALUES (89154931130370, 2, '\x0102');
INSERT INTO gq.blob_0 VALUES (89154931130373, 3, '\x68616c66');
INSERT INTO gq.blob_0 VALUES (89154931130377, 4, '\x0102000000');
INSERT INTO gq.doc VALUES ('thing', 'one', 1, '\x7b7d');
INSERT INTO gq.done_0 VALUES (89154931130369, 1793534400000000000, 7, 'work', '', '\x0384808080e0a2140101010703fc0578dd42d2ba4849769507a574d440e256010018e3ea08c4718000000101000000010000000000015116000000014ab680b243f4a3d628a9010206776f726b6572010000000080e0a596bb1180e0a596bb11000008a2ae07b54ab8373ff000000000000000');
INSERT INTO gq.done_0 VALUES (89154931130370, 1793534400000000000, 7, 'work', '', '\x0384808080e0a2140102010703fc05db77e8e7acfb4774a0063f7d8942ae83010018e3ea08c4718000000101000000010000000000015116000000024e2fa5334b5dfe72fd05010206776f726b6572010000000080e0a596bb1180e0a596bb11000008a2ae07b54ab8373ff000000000000000');
INSERT INTO gq.done_0 VALUES (89154931130372, 1793534400000000000, 8, 'work', '', '\x0384808080e0a2140104010803fc09ecdcff9c09d84ee7affcd4f9186e8a5a010018e3ea08c4718000000101000100010000000000015116000000044747867167a47fa68aa4010206776f726b6572010000000080e0a596bb1180e0a596bb110000e191a430eaab4f1b0200056e6576657200');
INSERT INTO gq.done_0 VALUES (89154931130378, 1793534400000000000, 10, 'work', '', '\x0284808080e0a21407010a03d830af383d66bab84202a1265e4b09cbeb01010018e3ea08c471800000010000000118e3ea08c471800000000a6e6f74206e65656465640a6e6f74206e6565646564');
INSERT INTO gq.edge VALUES (89154931130377, 89154931130379, 1);
INSERT INTO gq.head VALUES (true, 43, 0, 1793534400000000000);
INSERT INTO gq.held VALUES (89154931130374, 1793534700000000000, 5, 'work', NULL, '', '\x0284808080e0a21401010503bc018194d51601874d3181cff4ce5190947e010018e3ea08c47180000001010000000100000000015116000000064d988e87d22e1e2975ee010106776f726b6572010000000080e0a596bb1180e0a596bb1100000000000000000000');
INSERT INTO gq.held VALUES (89154931130373, 1793534700000000000, 5, 'work', NULL, '', '\x0284808080e0a21401010503bc4133823a467bd547eb9b115f040cb775fc010018e3ea08c471800000010100000001000000000151160000000543778454093425687e99010106776f726b6572010000000080e0a596bb1180e0a596bb1100000000000000000000000401');
INSERT INTO gq.held VALUES (89154931130381, 1793534700000000000, 5, 'foreign', NULL, '', '\x028d808080e0a21401010503bc01dd9b7439f0874b22ae34af3721d9992c010018e3ea08c471800000010100000001000000000014736f6d65626f64792d656c7365732d6c6561736501010177010000000080e0a596bb1180e0a596bb1100000000000000000000');
INSERT INTO gq.held VALUES (89154931130383, 1793534700000000000, 5, 'shared', NULL, '', '\x028d808080e0a21402010503bc01c54b4ba4f9ce429fa7d1461442a30259010018e3ea08c471800000010100000001000000000151160000000f4396a2fac5a526490df1010106776f726b6572010000000080e0a596bb1180e0a596bb1100000000000000000000');
INSERT INTO gq.idempotency VALUES ('\x73', '\x6f6e6365', 7, '78dd42d2-ba48-4976-9507-a574d440e256', 89154931130369, 1793620800000000000);
INSERT INTO gq.job_0 VALUES (89154931130369, '78dd42d2-ba48-4976-9507-a574d440e256', 0, 1793534400000000000, 'work', '{}', '\x010178dd42d2ba4849769507a574d440e25604776f726b04776f726b010003000a746578742f706c61696e0173046f6e6365000000000000000700', '\x7061796c6f6164');
INSERT INTO gq.job_0 VALUES (89154931130370, 'db77e8e7-acfb-4774-a006-3f7d8942ae83', 0, 1793534400000000000, 'work', '{}', '\x0100db77e8e7acfb4774a0063f7d8942ae8304776f726b04776f726b0100030100', '\x6e756c6c');
INSERT INTO gq.job_0 VALUES (89154931130371, 'bae6f0ce-2e67-47f1-b0ff-8167385b69a0', 0, 1793534400000000000, 'work', '{}', '\x0100bae6f0ce2e6747f1b0ff8167385b69a004776f726b04776f726b0100030100', '\x6e756c6c');
INSERT INTO gq.job_0 VALUES (89154931130372, 'ecdcff9c-09d8-4ee7-affc-d4f9186e8a5a', 0, 1793534400000000000, 'work', '{}', '\x0100ecdcff9c09d84ee7affcd4f9186e8a5a04776f726b04776f726b0100030100', '\x6e756c6c');
INSERT INTO gq.job_0 VALUES (89154931130373, '33823a46-7bd5-47eb-9b11-5f040cb775fc', 0, 1793534400000000000, 'work', '{}', '\x010033823a467bd547eb9b115f040cb775fc04776f726b04776f726b0100030100', '\x6e756c6c');
INSERT INTO gq.job_0 VALUES (89154931130374, '8194d516-0187-4d31-81cf-f4ce5190947e', 0, 1793534400000000000, 'work', '{}', '\x01008194d51601874d3181cff4ce5190947e04776f726b04776f726b0100030100', '\x6e756c6c');
INSERT INTO gq.job_0 VALUES (89154931130375, 'a0924884-e150-4f5e-b80d-59bfcde545a4', 0, 1793534400000000000, 'work', '{}', '\x0100a0924884e1504f5eb80d59bfcde545a404776f726b04776f726b0100030100', '\x6e756c6c');
INSERT INTO gq.job_0 VALUES (89154931130376, '83ae61bc-3e37-45ae-882a-c28b99128c8c', 0, 1793534400000000000, 'work', '{}', '\x010083ae61bc3e3745ae882ac28b99128c8c04776f726b04776f726b0100030100', '\x6e756c6c');
INSERT INTO gq.job_0 VALUES (89154931130377, 'a0a4ccff-f272-4d04-b968-537707b21273', 0, 1793534400000000000, 'work', '{}', '\x0100a0a4ccfff2724d04b968537707b2127304776f726b04776f726b0100030100', '\x6e756c6c');
INSERT INTO gq.job_0 VALUES (89154931130378, 'af383d66-bab8-4202-a126-5e4b09cbeb01', 0, 1793534400000000000, 'work', '{}', '\x0100af383d66bab84202a1265e4b09cbeb0104776f726b04776f726b0100030100', '\x6e756c6c');
INSERT INTO gq.job_0 VALUES (89154931130379, 'd19518fc-5250-4a83-b54d-929b0828d0b6', 0, 1793534400000000000, 'work', '{}', '\x0104d19518fc52504a83b54d929b0828d0b604776f726b04776f726b010003010101a0a4ccfff2724d04b968537707b2127300', '\x6e756c6c');
INSERT INTO gq.job_0 VALUES (89154931130380, '8dfdde0d-98ec-4ca4-a1ce-b23e744cca6d', 0, 1793534400000000000, 'work', '{}', '\x01028dfdde0d98ec4ca4a1ceb23e744cca6d056c6174657204776f726b010003011953f3dbf214800000', '\x6e756c6c');
INSERT INTO gq.job_0 VALUES (89154931130381, 'dd9b7439-f087-4b22-ae34-af3721d9992c', 0, 1793534400000000000, 'work', '{}', '\x0100dd9b7439f0874b22ae34af3721d9992c07666f726569676e04776f726b0100030100', '\x6e756c6c');
INSERT INTO gq.job_0 VALUES (89154931130382, '4354447a-3325-4e16-aee2-c792ab7c1f3d', 0, 1793534400000000000, 'work', '{}', '\x01004354447a33254e16aee2c792ab7c1f3d046661697204776f726b0100030100', '\x6e756c6c');
INSERT INTO gq.job_0 VALUES (89154931130383, 'c54b4ba4-f9ce-429f-a7d1-461442a30259', 0, 1793534400000000000, 'work', '{}', '\x0100c54b4ba4f9ce429fa7d1461442a302590673686172656404776f726b0100030100', '\x6e756c6c');
INSERT INTO gq.lease VALUES ('somebody-elses-lease', 89154931130381);
INSERT INTO gq.log_0 VALUES (89154931130372, '\x78dd42d2ba4849769507a574d440e25604776f726b0101000078dd42d2ba4849769507a574d440e2560002030000db77e8e7acfb4774a0063f7d8942ae830001010000db77e8e7acfb4774a0063f7d8942ae830002030000bae6f0ce2e6747f1b0ff8167385b69a00001010000bae6f0ce2e6747f1b0ff8167385b69a00002030000ecdcff9c09d84ee7affcd4f9186e8a5a0001010000ecdcff9c09d84ee7affcd4f9186e8a5a000203000033823a467bd547eb9b115f040cb775fc000101000033823a467bd547eb9b115f040cb775fc00020300008194d51601874d3181cff4ce5190947e00010100008194d51601874d3181cff4ce5190947e0002030000a0924884e1504f5eb80d59bfcde545a40001010000a0924884e1504f5eb80d59bfcde545a4000203000083ae61bc3e3745ae882ac28b99128c8c000101000083ae61bc3e3745ae882ac28b99128c8c0002030000a0a4ccfff2724d04b968537707b212730001010000a0a4ccfff2724d04b968537707b212730002030000af383d66bab84202a1265e4b09cbeb010001010000af383d66bab84202a1265e4b09cbeb010002030000');
INSERT INTO gq.log_0 VALUES (89154931130373, '\x78dd42d2ba4849769507a574d440e25604776f726b06050301015116000000014ab680b243f4a3d628a9010106776f726b657218e3ea4e9dd63800db77e8e7acfb4774a0063f7d8942ae830006050301015116000000024e2fa5334b5dfe72fd05010106776f726b657218e3ea4e9dd63800bae6f0ce2e6747f1b0ff8167385b69a0000605030101511600000003473683fffb8c64a42abe010106776f726b657218e3ea4e9dd63800ecdcff9c09d84ee7affcd4f9186e8a5a0006050301015116000000044747867167a47fa68aa4010106776f726b657218e3ea4e9dd6380033823a467bd547eb9b115f040cb775fc00060503010151160000000543778454093425687e99010106776f726b657218e3ea4e9dd638008194d51601874d3181cff4ce5190947e0006050301015116000000064d988e87d22e1e2975ee010106776f726b657218e3ea4e9dd63800');
INSERT INTO gq.log_0 VALUES (89154931130374, '\x78dd42d2ba4849769507a574d440e25604776f726b07070101015116000000014ab680b243f4a3d628a9010206776f726b6572');
INSERT INTO gq.log_0 VALUES (89154931130375, '\xdb77e8e7acfb4774a0063f7d8942ae8304776f726b07070101015116000000024e2fa5334b5dfe72fd05010206776f726b6572');
INSERT INTO gq.log_0 VALUES (89154931130376, '\xbae6f0ce2e6747f1b0ff8167385b69a004776f726b09064b0101511600000003473683fffb8c64a42abe010206776f726b657218e3ea09000c4a00010005616761696e0018e3ea08c4718000');
INSERT INTO gq.log_0 VALUES (89154931130377, '\xecdcff9c09d84ee7affcd4f9186e8a5a04776f726b08080901015116000000044747867167a47fa68aa4010206776f726b65720200056e6576657200');
INSERT INTO gq.log_0 VALUES (89154931130379, '\xaf383d66bab84202a1265e4b09cbeb0104776f726b0b0a10000a6e6f74206e6565646564');
INSERT INTO gq.log_0 VALUES (89154931130380, '\xa0a4ccfff2724d04b968537707b2127304776f726b0f030000');
INSERT INTO gq.log_0 VALUES (89154931130381, '\xd19518fc52504a83b54d929b0828d0b604776f726b010100008dfdde0d98ec4ca4a1ceb23e744cca6d056c61746572010100008dfdde0d98ec4ca4a1ceb23e744cca6d00030202001953f3dbf2148000dd9b7439f0874b22ae34af3721d9992c07666f726569676e01010000dd9b7439f0874b22ae34af3721d9992c00020300004354447a33254e16aee2c792ab7c1f3d0466616972010100004354447a33254e16aee2c792ab7c1f3d0002030000c54b4ba4f9ce429fa7d1461442a302590673686172656401010000c54b4ba4f9ce429fa7d1461442a302590002030000');
INSERT INTO gq.log_0 VALUES (89154931130382, '\xdd9b7439f0874b22ae34af3721d9992c07666f726569676e060503010014736f6d65626f64792d656c7365732d6c656173650101017718e3ea4e9dd63800');
INSERT INTO gq.log_0 VALUES (89154931130383, '\xc54b4ba4f9ce429fa7d1461442a3025906736861726564060503010151160000000f4396a2fac5a526490df1010106776f726b657218e3ea4e9dd63800');
INSERT INTO gq.migration VALUES (2, '2026-11-15 15:17:45.979779+00');
INSERT INTO gq.migration VALUES (3, '2026-11-15 15:17:46.019971+00');
INSERT INTO gq.migration VALUES (4, '2026-11-15 15:17:46.031878+00');
INSERT INTO gq.migration VALUES (5, '2026-11-15 15:17:46.038492+00');
INSERT INTO gq.migration VALUES (6, '2026-11-15 15:17:46.042999+00');
INSERT INTO gq.name VALUES ('33823a46-7bd5-47eb-9b11-5f040cb775fc', 89154931130373);
INSERT INTO gq.name VALUES ('78dd42d2-ba48-4976-9507-a574d440e256', 89154931130369);
INSERT INTO gq.name VALUES ('8194d516-0187-4d31-81cf-f4ce5190947e', 89154931130374);
INSERT INTO gq.name VALUES ('83ae61bc-3e37-45ae-882a-c28b99128c8c', 89154931130376);
INSERT INTO gq.name VALUES ('a0924884-e150-4f5e-b80d-59bfcde545a4', 89154931130375);
INSERT INTO gq.name VALUES ('a0a4ccff-f272-4d04-b968-537707b21273', 89154931130377);
INSERT INTO gq.name VALUES ('af383d66-bab8-4202-a126-5e4b09cbeb01', 89154931130378);
INSERT INTO gq.name VALUES ('bae6f0ce-2e67-47f1-b0ff-8167385b69a0', 89154931130371);
INSERT INTO gq.name VALUES ('db77e8e7-acfb-4774-a006-3f7d8942ae83', 89154931130370);
INSERT INTO gq.name VALUES ('ecdcff9c-09d8-4ee7-affc-d4f9186e8a5a', 89154931130372);
INSERT INTO gq.name VALUES ('4354447a-3325-4e16-aee2-c792ab7c1f3d', 89154931130382);
INSERT INTO gq.name VALUES ('8dfdde0d-98ec-4ca4-a1ce-b23e744cca6d', 89154931130380);
INSERT INTO gq.name VALUES ('c54b4ba4-f9ce-429f-a7d1-461442a30259', 89154931130383);
INSERT INTO gq.name VALUES ('d19518fc-5250-4a83-b54d-929b0828d0b6', 89154931130379);
INSERT INTO gq.name VALUES ('dd9b7439-f087-4b22-ae34-af3721d9992c', 89154931130381);
INSERT INTO gq.partition VALUES ('0', -9223372036854775808, 89215060672512, 0);
INSERT INTO gq.pool VALUES ('gpus', 70, false, 1793534400000000000);
INSERT INTO gq.queue VALUES ('fair', '{"Fair": true, "Name": "fair", "Pool": "", "Rate": {"Per": 0, "Burst": 0, "Count": 0}, "Paused": false, "Policy": {"Hold": 60000000000, "Extend": 1, "OnLoss": 1, "Preset": "jobmodel", "Backoff": {"Max": 3600000000000, "Custom": "", "Jitter": "none", "Initial": 1000000000, "Strategy": "exponential", "Multiplier": 2}, "LeaseTTL": 300000000000, "Lifetime": 604800000000000, "ExtendPPB": 0, "HoldFault": false, "CancelWins": false, "RenewByPPB": 0, "RetryNever": false, "MaxAttempts": 3, "RenewalsMax": 0, "RetrySystem": true, "RunLifetime": 0, "RetryTimeout": true, "MaxLeaseLosses": 0, "ExecutionTimeout": 1800000000000, "IdempotencyWindow": 86400000000000}, "KeyLimit": 0, "MaxDepth": 0, "UpdatedAt": "2026-11-01T12:00:00Z", "MaxRunning": 0}', 0, '{0,0,0,0,0}');
INSERT INTO gq.queue VALUES ('shared', '{"Fair": false, "Name": "shared", "Pool": "gpus", "Rate": {"Per": 0, "Burst": 0, "Count": 0}, "Paused": false, "Policy": {"Hold": 60000000000, "Extend": 1, "OnLoss": 1, "Preset": "jobmodel", "Backoff": {"Max": 3600000000000, "Custom": "", "Jitter": "none", "Initial": 1000000000, "Strategy": "exponential", "Multiplier": 2}, "LeaseTTL": 300000000000, "Lifetime": 604800000000000, "ExtendPPB": 0, "HoldFault": false, "CancelWins": false, "RenewByPPB": 0, "RetryNever": false, "MaxAttempts": 3, "RenewalsMax": 0, "RetrySystem": true, "RunLifetime": 0, "RetryTimeout": true, "MaxLeaseLosses": 0, "ExecutionTimeout": 1800000000000, "IdempotencyWindow": 86400000000000}, "KeyLimit": 0, "MaxDepth": 0, "UpdatedAt": "2026-11-01T12:00:00Z", "MaxRunning": 5}', 0, '{0,0,0,0,0}');
INSERT INTO gq.ready VALUES (89154931130375, -9007199254740992000, -9223282881923645433, 1793534400000000000, 1794139200000000000, 3, 'work', NULL, '', '\x0184808080e0a21401030318a0924884e1504f5eb80d59bfcde545a4010018e3ea08c471800000010000', 0, 'work', NULL);
INSERT INTO gq.ready VALUES (89154931130376, -9007199254740992000, -9223282881923645432, 1793534400000000000, 1794139200000000000, 3, 'work', NULL, '', '\x0184808080e0a2140103031883ae61bc3e3745ae882ac28b99128c8c010018e3ea08c471800000010000', 0, 'work', NULL);
INSERT INTO gq.ready VALUES (89154931130371, -9007199254740992000, -9223282881923645437, 1793534401000000000, 1793534401000000000, 6, 'work', NULL, '', '\x0384808080e0a2140103010603bc09bae6f0ce2e6747f1b0ff8167385b69a0010018e3ea08c47180000001010001000180a8d6b90700000001511600000003473683fffb8c64a42abe010206776f726b6572010000000080e0a596bb1180e0a596bb1100005ba8504cf0d597f9010005616761696e00', 0, 'work', NULL);
INSERT INTO gq.ready VALUES (89154931130377, -9079256848778919936, -9223282881923645431, 1793534400000000000, 1794139200000000000, 3, 'work', NULL, '', '\x0284808080e0a2140801030218a0a4ccfff2724d04b968537707b21273010018e3ea08c471800000010000', 0, 'work', NULL);
INSERT INTO gq.ready VALUES (89154931130379, -9079256848778919936, -9223282881923645429, 1793534400000000000, 1794139200000000000, 1, 'work', NULL, '', '\x018d808080e0a2140101030bd19518fc52504a83b54d929b0828d0b6010018e3ea08c47180000002020100', 0, 'work', NULL);
INSERT INTO gq.ready VALUES (89154931130380, -9007199254740992000, -9223282881923645428, 1825070400000000000, 1794139200000000000, 2, 'later', NULL, '', '\x018d808080e0a214010203088dfdde0d98ec4ca4a1ceb23e744cca6d010018e3ea08c47180000001808098dae5f48470', 0, 'work', NULL);
INSERT INTO gq.ready VALUES (89154931130382, -9007199254740991999, -9223282881923645426, 1793534400000000000, 1794139200000000000, 3, 'fair', NULL, '', '\x018d808080e0a2140103039880024354447a33254e16aee2c792ab7c1f3d010018e3ea08c47180000001010000', 0, 'work', NULL);
INSERT INTO gq.segment_0 VALUES (89154931130372, 1, 1793534400000000000, 20, '6af7427c-24c3-8336-b88a-808252e90897');
INSERT INTO gq.segment_0 VALUES (89154931130373, 21, 1793534400000000000, 6, '59a1e943-d457-b7ab-2672-b6988a1485f2');
INSERT INTO gq.segment_0 VALUES (89154931130374, 27, 1793534400000000000, 1, '08738149-3a9d-9f5f-dd11-4302a8e369da');
INSERT INTO gq.segment_0 VALUES (89154931130375, 28, 1793534400000000000, 1, '5572d1e6-3d92-2a83-e0e2-e8b808fdcaee');
INSERT INTO gq.segment_0 VALUES (89154931130376, 29, 1793534400000000000, 1, '24c664ba-63c9-d289-0230-ced82d203965');
INSERT INTO gq.segment_0 VALUES (89154931130377, 30, 1793534400000000000, 1, 'da0d8219-cf12-b48f-0f07-756cc02d94b9');
INSERT INTO gq.segment_0 VALUES (89154931130379, 31, 1793534400000000000, 1, 'eab54257-1fd2-de7d-5e40-4eadb5d0249e');
INSERT INTO gq.segment_0 VALUES (89154931130380, 32, 1793534400000000000, 1, '8236931f-6d1b-e92c-bb83-b33723876328');
INSERT INTO gq.segment_0 VALUES (89154931130381, 33, 1793534400000000000, 9, '18ddce28-07d2-d1fa-c5cf-7006164bebca');
INSERT INTO gq.segment_0 VALUES (89154931130382, 42, 1793534400000000000, 1, 'fac852b3-f5ed-ac9b-c5dd-4def7d7ec084');
INSERT INTO gq.segment_0 VALUES (89154931130383, 43, 1793534400000000000, 1, 'f65f03c1-5473-9746-16ed-fea03e12fc6c');
INSERT INTO gq.tally VALUES ('work', 10, 1);
INSERT INTO gq.tally VALUES ('later', 2, 1);
INSERT INTO gq.tally VALUES ('fair', 3, 1);
INSERT INTO gq.tally VALUES ('work', 6, 1);
INSERT INTO gq.tally VALUES ('work', 3, 3);
INSERT INTO gq.tally VALUES ('work', 5, 2);
INSERT INTO gq.tally VALUES ('work', 7, 2);
INSERT INTO gq.tally VALUES ('work', 8, 1);
INSERT INTO gq.tally VALUES ('work', 1, 1);
INSERT INTO gq.tally VALUES ('foreign', 5, 1);
INSERT INTO gq.tally VALUES ('foreign', 3, 0);
INSERT INTO gq.tally VALUES ('shared', 5, 1);
INSERT INTO gq.tally VALUES ('shared', 3, 0);
INSERT INTO gq.turn VALUES ('fair', 3, '', 1);
SELECT pg_catalog.setval('gq.doc_version', 1, true);
SELECT pg_catalog.setval('gq.segment_id', 89154931130383, true);
SELECT pg_catalog.setval('gq.submission', 89154931130383, true);
ALTER TABLE ONLY gq.blob
    ADD CONSTRAINT blob_pkey PRIMARY KEY (seq, part);
ALTER TABLE ONLY gq.blob_0
    ADD CONSTRAINT blob_0_pkey PRIMARY KEY (seq, part);
ALTER TABLE ONLY gq.doc
    ADD CONSTRAINT doc_pkey PRIMARY KEY (kind, name);
ALTER TABLE ONLY gq.done
    ADD CONSTRAINT done_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY gq.done_0
    ADD CONSTRAINT done_0_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY gq.edge
    ADD CONSTRAINT edge_pkey PRIMARY KEY (parent, child);
ALTER TABLE ONLY gq.ended
    ADD CONSTRAINT ended_pkey PRIMARY KEY (parent);
ALTER TABLE ONLY gq.head
    ADD CONSTRAINT head_pkey PRIMARY KEY (one);
ALTER TABLE ONLY gq.held
    ADD CONSTRAINT held_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY gq.horizon
    ADD CONSTRAINT horizon_pkey PRIMARY KEY (status);
ALTER TABLE ONLY gq.idempotency
    ADD CONSTRAINT idempotency_pkey PRIMARY KEY (scope, name);
ALTER TABLE ONLY gq.job
    ADD CONSTRAINT job_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY gq.job_0
    ADD CONSTRAINT job_0_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY gq.lease
    ADD CONSTRAINT lease_pkey PRIMARY KEY (id);
ALTER TABLE ONLY gq.log
    ADD CONSTRAINT log_pkey PRIMARY KEY (id);
ALTER TABLE ONLY gq.log_0
    ADD CONSTRAINT log_0_pkey PRIMARY KEY (id);
ALTER TABLE ONLY gq.migration
    ADD CONSTRAINT migration_pkey PRIMARY KEY (version);
ALTER TABLE ONLY gq.name
    ADD CONSTRAINT name_pkey PRIMARY KEY (id);
ALTER TABLE ONLY gq.partition
    ADD CONSTRAINT partition_first_key UNIQUE (first);
ALTER TABLE ONLY gq.partition
    ADD CONSTRAINT partition_past_key UNIQUE (past);
ALTER TABLE ONLY gq.partition
    ADD CONSTRAINT partition_pkey PRIMARY KEY (name);
ALTER TABLE ONLY gq.pool
    ADD CONSTRAINT pool_pkey PRIMARY KEY (name);
ALTER TABLE ONLY gq.queue
    ADD CONSTRAINT queue_pkey PRIMARY KEY (name);
ALTER TABLE ONLY gq.ready
    ADD CONSTRAINT ready_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY gq.segment
    ADD CONSTRAINT segment_pkey PRIMARY KEY (id);
ALTER TABLE ONLY gq.segment_0
    ADD CONSTRAINT segment_0_pkey PRIMARY KEY (id);
ALTER TABLE ONLY gq.tally
    ADD CONSTRAINT tally_pkey PRIMARY KEY (queue, status);
ALTER TABLE ONLY gq.turn
    ADD CONSTRAINT turn_pkey PRIMARY KEY (queue, level, key);
CREATE INDEX done_ended ON ONLY gq.done USING btree (status, ended, ((seq + 0)));
CREATE INDEX done_0_status_ended_expr_idx ON gq.done_0 USING btree (status, ended, ((seq + 0)));
CREATE INDEX edge_child ON gq.edge USING btree (child);
CREATE INDEX held_due ON gq.held USING btree (queue, due);
CREATE INDEX held_limited ON gq.held USING btree (queue, limited) WHERE (limited IS NOT NULL);
CREATE INDEX idempotency_seq ON gq.idempotency USING btree (seq);
CREATE INDEX lease_seq ON gq.lease USING btree (seq);
CREATE INDEX ready_claim ON gq.ready USING btree (queue, order_hi, order_lo) WHERE (status = ANY (ARRAY[2, 3, 6]));
CREATE INDEX ready_due ON gq.ready USING btree (((due + 0)), seq) WHERE ((due + 0) IS NOT NULL);
CREATE INDEX segment_fresh ON ONLY gq.segment USING btree (id) WHERE (seq IS NULL);
CREATE INDEX segment_0_fresh ON gq.segment_0 USING btree (id) WHERE (seq IS NULL);
CREATE INDEX segment_seq ON ONLY gq.segment USING btree (seq) WHERE (seq IS NOT NULL);
CREATE INDEX segment_0_seq ON gq.segment_0 USING btree (seq) WHERE (seq IS NOT NULL);
ALTER INDEX gq.blob_pkey ATTACH PARTITION gq.blob_0_pkey;
ALTER INDEX gq.done_pkey ATTACH PARTITION gq.done_0_pkey;
ALTER INDEX gq.done_ended ATTACH PARTITION gq.done_0_status_ended_expr_idx;
ALTER INDEX gq.job_pkey ATTACH PARTITION gq.job_0_pkey;
ALTER INDEX gq.log_pkey ATTACH PARTITION gq.log_0_pkey;
ALTER INDEX gq.segment_fresh ATTACH PARTITION gq.segment_0_fresh;
ALTER INDEX gq.segment_pkey ATTACH PARTITION gq.segment_0_pkey;
ALTER INDEX gq.segment_seq ATTACH PARTITION gq.segment_0_seq;
