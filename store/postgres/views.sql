-- The views of a queue in PostgreSQL, for people who query with SQL: all jobs as gq.jobs, and the
-- tables of the scheduler API and of matching in the schemas gq_scheduler and gq_matching. The queue
-- itself reads none of it. Beside a schema of another name they are NAME_scheduler and NAME_matching.
--
-- A program that starts makes the views anew unless they are these or those of a newer program: see
-- views.go. So this file may change without a new layout, but not without a new number.

-- Schemas that hold tables belong to somebody else.
DO $$
BEGIN
    IF to_regnamespace('gq_matching') IS NULL THEN
        CREATE SCHEMA gq_matching;
    END IF;
    IF to_regnamespace('gq_scheduler') IS NULL THEN
        CREATE SCHEMA gq_scheduler;
    END IF;
    IF EXISTS (SELECT FROM pg_class WHERE relnamespace IN (to_regnamespace('gq_matching'), to_regnamespace('gq_scheduler')) AND relkind IN ('r', 'p')) THEN
        RAISE EXCEPTION 'the schemas % and % are for views of the queue, and one of them has tables', to_regnamespace('gq_matching'), to_regnamespace('gq_scheduler');
    END IF;
END $$;

-- Earlier states of this program had the tables of the documents in the schema gq.
DROP VIEW IF EXISTS gq.job_index, gq.jobs, gq.leases, gq.provider_quotas, gq.scheduler_job_runs, gq.scheduler_lease_runs, gq.scheduler_events;
DROP VIEW IF EXISTS gq_matching.job_index, gq_matching.jobs, gq_matching.leases, gq_matching.provider_quotas;
DROP VIEW IF EXISTS gq_scheduler.scheduler_job_runs, gq_scheduler.scheduler_lease_runs, gq_scheduler.scheduler_events;
DROP FUNCTION IF EXISTS gq.scheduler_leases, gq.matching_leases, gq.matching_priority;
DROP VIEW IF EXISTS gq.matching_job, gq.matching_weights, gq.matching_now, gq.report_kept, gq.scheduler_addon;
DROP FUNCTION IF EXISTS gq.unpack, gq.read_job, gq.job_id, gq.id_mask, gq.read_item, gq.read_fields, gq.read_text;

-- An instant, rounded down to the microsecond, the precision of timestamptz. A double is exact
-- to the microsecond until 2242.
CREATE OR REPLACE FUNCTION gq.instant(nanoseconds bigint) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN to_timestamp((nanoseconds / 1000) / 1000000.0::double precision);

-- An instant as text, as the scheduler API writes it.
CREATE OR REPLACE FUNCTION gq.stamp(nanoseconds bigint) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN nanoseconds IS NULL THEN '0001-01-01T00:00:00Z'
    ELSE to_char(gq.instant(nanoseconds) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS')
        || rtrim(rtrim('.' || lpad((nanoseconds / 1000 % 1000000)::text, 6, '0'), '0'), '.') || 'Z'
END;

-- Bytes as JSON; NULL if they are not valid JSON. It catches errors, which parallel workers cannot.
CREATE OR REPLACE FUNCTION gq.read_json(b bytea) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL UNSAFE AS $$
BEGIN
    RETURN convert_from(b, 'UTF8')::jsonb;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END $$;

-- All jobs
--
-- The rest of this section reads the bytes in which gq.ready, gq.held and gq.done keep specs and
-- states, so that writing a job costs nothing for the sake of the view. See package store/codec for
-- the format, and body.go, pack.go and ids.go. A test compares every column with the API.

-- Bytes as text. What text cannot hold, U+0000 and invalid UTF-8, is escaped. It catches no error,
-- because no function may do that in a query of parallel workers.
CREATE FUNCTION gq.read_text(b bytea) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE
    WHEN position('\x00' IN b) > 0 THEN encode(b, 'escape')
    WHEN convert_from(b, 'LATIN1') ~ '^([\u0001-\u007f]|[\u00c2-\u00df][\u0080-\u00bf]|\u00e0[\u00a0-\u00bf][\u0080-\u00bf]|[\u00e1-\u00ec\u00ee\u00ef][\u0080-\u00bf]{2}|\u00ed[\u0080-\u009f][\u0080-\u00bf]|\u00f0[\u0090-\u00bf][\u0080-\u00bf]{2}|[\u00f1-\u00f3][\u0080-\u00bf]{3}|\u00f4[\u0080-\u008f][\u0080-\u00bf]{2})*$'
        THEN convert_from(b, 'UTF8')
    ELSE encode(b, 'escape')
END;

-- The fields of a record from a position on, as text, and the position after them. A letter of the form
-- stands for a field: - for one that is absent, b for a byte, u for a number, z for one with a sign,
-- f for eight bytes, i for an id, s for a string, l for the id of a lease, m for a map, p for a policy,
-- of which only the attempts are read; and for what is skipped c for a content type, o for an optional
-- instant, t for a list of strings and d for dependencies.
CREATE FUNCTION gq.read_fields(b bytea, place integer, form text) RETURNS text[]
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    fields text[] := '{}';
    inner_fields text[];
    kind text;
    n bigint;
    c integer;
    shift integer;
BEGIN
    FOR i IN 1..length(form) LOOP
        kind := substr(form, i, 1);
        IF kind IN ('l', 'c', 'o') THEN -- a byte tells which form follows
            c := get_byte(b, place);
            place := place + 1;
            IF kind = 'o' THEN
                place := place + 8 * c;
            ELSIF kind = 'l' AND c = 1 THEN
                fields[i] := encode(substring(b FROM place + 1 FOR 16), 'hex')::uuid;
                place := place + 16;
            ELSIF c = 0 THEN
                kind := 's';
            END IF;
        END IF;
        IF kind IN ('u', 'z', 's', 'm', 't', 'd') THEN
            n := 0;
            shift := 0;
            LOOP
                c := get_byte(b, place);
                place := place + 1;
                n := n | ((c & 127)::bigint << shift);
                shift := shift + 7;
                EXIT WHEN c < 128;
            END LOOP;
        END IF;
        CASE kind
        WHEN 'u' THEN
            fields[i] := n;
        WHEN 'z' THEN
            fields[i] := ((n >> 1) & 9223372036854775807) # -(n & 1);
        WHEN 'b' THEN
            fields[i] := get_byte(b, place);
            place := place + 1;
        WHEN 's' THEN
            fields[i] := gq.read_text(substring(b FROM place + 1 FOR n::integer));
            place := place + n;
        WHEN 'f' THEN
            fields[i] := ('x' || encode(substring(b FROM place + 1 FOR 8), 'hex'))::bit(64)::bigint;
            place := place + 8;
        WHEN 'i' THEN
            fields[i] := encode(substring(b FROM place + 1 FOR 16), 'hex');
            place := place + 16;
        WHEN 'm', 't' THEN
            IF kind = 'm' THEN
                n := 2 * n;
            END IF;
            inner_fields := gq.read_fields(b, place, repeat('s', n::integer));
            place := inner_fields[n + 1];
            IF kind = 'm' THEN
                fields[i] := jsonb_object(inner_fields[1:n]);
            END IF;
        WHEN 'd' THEN
            place := place + 17 * n;
        WHEN 'p' THEN -- the first byte is the preset, the second tells whether the policy is another
            fields[i] := (ARRAY[3, 4, 3, 6, 6, 3, 20])[get_byte(b, place)];
            place := place + 2;
            IF get_byte(b, place - 1) = 1 THEN
                inner_fields := gq.read_fields(b, place, 'bbbbbfszzzzzzzzzzzzz');
                place := inner_fields[21];
                fields[i] := inner_fields[16];
                IF inner_fields[1]::integer & 32 <> 0 THEN
                    c := get_byte(b, place);
                    inner_fields := gq.read_fields(b, place + 1, repeat('z', bit_count(c::bit(8))::integer));
                    place := inner_fields[array_upper(inner_fields, 1)];
                END IF;
            END IF;
        ELSE
            NULL;
        END CASE;
    END LOOP;
    fields[length(form) + 1] := place;
    RETURN fields;
END $$;

-- What the state and the spec of a job say. Instants are nanoseconds since 1970.
CREATE FUNCTION gq.read_job(
    body bytea, data bytea,
    OUT native boolean, OUT stored_id uuid, OUT type text, OUT detail integer, OUT own integer, OUT effective integer,
    OUT attempt bigint, OUT bound bigint, OUT waits bigint, OUT created bigint, OUT updated bigint, OUT run_at bigint,
    OUT scheduled bigint, OUT started bigint, OUT completed bigint, OUT worker text, OUT lease text, OUT expires bigint,
    OUT code text, OUT message text, OUT reason text, OUT limit_key text, OUT requester text, OUT workflow uuid, OUT ref text,
    OUT order_key text, OUT tags jsonb, OUT correlation text, OUT held_before boolean
)
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    f text[]; -- fields that are always there
    g text[]; -- optional ones
    n bigint;
    has bigint;
BEGIN
    f := gq.read_fields(data, 0, 'u'); -- the segments with its events come first
    n := f[1];
    native := n & 2 <> 0;
    f := gq.read_fields(data, f[2]::integer, repeat('u', (n >> 2)::integer));
    f := gq.read_fields(data, f[array_upper(f, 1)]::integer, 'bbbuipfzu');
    has := f[4];
    g := gq.read_fields(data, f[10]::integer,
        CASE WHEN has & (1 << 15) <> 0 THEN 'u' ELSE '-' END
        || CASE WHEN has & 1 <> 0 THEN 'b' ELSE '-' END
        || CASE WHEN has & 2 <> 0 THEN 'u' ELSE '-' END
        || CASE WHEN has & (1 << 18) <> 0 THEN 'b' ELSE '-' END
        || CASE WHEN has & 4 <> 0 THEN 'uuuuu' ELSE '-----' END
        || CASE WHEN has & 8 <> 0 THEN 'z' ELSE '-' END
        || CASE WHEN has & 16 <> 0 THEN 'z' ELSE '-' END
        || CASE WHEN has & 32 <> 0 THEN 'zz' ELSE '--' END
        || CASE WHEN has & (1 << 16) <> 0 THEN 'z' ELSE '-' END
        || CASE WHEN has & 64 <> 0 THEN 'z' ELSE '-' END
        || CASE WHEN has & 128 <> 0 THEN 'lubsulzzzzuuf' ELSE repeat('-', 13) END
        || CASE WHEN has & 256 <> 0 THEN 'lf' ELSE '--' END
        || CASE WHEN has & 512 <> 0 THEN 'fs' ELSE '--' END
        || CASE WHEN has & 1024 <> 0 THEN 'bssz' ELSE '----' END
        || CASE WHEN has & 2048 <> 0 THEN 'ooos' ELSE '----' END
        || CASE WHEN has & 4096 <> 0 THEN 's' ELSE '-' END);
    stored_id := f[5];
    detail := f[3]::integer >> 4;
    own := f[3]::integer & 15;
    effective := least(own, nullif(g[2]::integer, 0));
    waits := coalesce(g[3]::bigint, 0) + (has >> 14 & 1);
    attempt := coalesce(g[5]::bigint, 0);
    bound := f[6]::bigint + coalesce(g[6]::bigint, 0);
    created := f[7];
    updated := created + f[8]::bigint;
    run_at := created + g[10]::bigint;
    scheduled := created + g[11]::bigint;
    started := created + g[12]::bigint;
    completed := created + g[15]::bigint;
    lease := g[16];
    held_before := g[20] = '0'; -- its last holder did not start it
    worker := g[19];
    expires := created + g[22]::bigint + g[23]::bigint + g[24]::bigint;
    code := nullif(g[34], '');
    message := nullif(g[35], '');
    reason := nullif(g[41], '');

    f := gq.read_fields(body, 0, 'u'); -- the payload comes first
    f := gq.read_fields(body, (f[2]::bigint + (f[1]::bigint >> 1))::integer, 'buisspbc');
    has := f[2];
    type := f[5];
    g := gq.read_fields(body, f[9]::integer,
        CASE WHEN has & 1 <> 0 THEN 'ssf' ELSE '---' END
        || CASE WHEN has & 2048 <> 0 THEN 'but' ELSE '---' END
        || CASE WHEN has & 2 <> 0 THEN 'f' ELSE '-' END
        || CASE WHEN has & 512 <> 0 THEN 'u' ELSE '-' END
        || CASE WHEN has & 4 <> 0 THEN 'd' ELSE '-' END
        || CASE WHEN has & 8 <> 0 THEN 'u' ELSE '-' END
        || CASE WHEN has & 16 <> 0 THEN 't' ELSE '-' END
        || CASE WHEN has & 32 <> 0 THEN 'ssu' ELSE '---' END
        || CASE WHEN has & 1024 <> 0 THEN 'ss' ELSE '--' END
        || CASE WHEN has & 64 <> 0 THEN 'm' ELSE '-' END
        || CASE WHEN has & 128 <> 0 THEN 'i' ELSE '-' END
        || CASE WHEN has & 4096 <> 0 THEN 'i' ELSE '-' END
        || CASE WHEN has & 8192 <> 0 THEN 'isb' ELSE '---' END
        || CASE WHEN has & 16384 <> 0 THEN 's' ELSE '-' END
        || CASE WHEN has & 32768 <> 0 THEN 'u' ELSE '-' END
        || CASE WHEN has & 256 <> 0 THEN 'mss' ELSE '---' END);
    requester := nullif(g[12], '');
    limit_key := nullif(g[15], '');
    workflow := nullif(g[20], repeat('0', 32));
    ref := nullif(g[21], '');
    order_key := nullif(g[23], '');
    tags := coalesce(g[25], '{}');
    correlation := nullif(g[26], '');
END $$;

-- The next item of a row of several jobs, and the position after it; see appendItem. first is the first
-- item, of which the others are given as differences.
CREATE FUNCTION gq.read_item(b bytea, first bytea, INOUT place integer, OUT item bytea)
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    f text[] := gq.read_fields(b, place, 'u');
    ending integer := f[1]; -- how many bytes at the end are as in the first
    size integer;           -- of what comes before them
    equal integer;
    other integer;
BEGIN
    place := f[2];
    IF first IS NULL THEN
        item := substring(b FROM place + 1 FOR ending);
        place := place + ending;
        RETURN;
    END IF;
    f := gq.read_fields(b, place, 'u');
    size := f[1];
    place := f[2];
    item := '';
    WHILE length(item) < size LOOP
        f := gq.read_fields(b, place, 'uu');
        equal := f[1];
        other := f[2];
        place := f[3];
        item := item || substring(first FROM length(item) + 1 FOR equal) || substring(b FROM place + 1 FOR other);
        place := place + other;
    END LOOP;
    item := item || substring(first FROM length(first) - ending + 1);
END $$;

-- The jobs of a row of gq.held or gq.done.
CREATE FUNCTION gq.unpack(first bigint, members bigint, bodies bytea, datas bytea) RETURNS TABLE (seq bigint, body bytea, data bytea)
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    written bigint := ('x' || encode(substring(datas FROM 1 FOR 8), 'hex'))::bit(64)::bigint;
    first_body bytea;
    first_data bytea;
    of_body record;
    of_data record;
    body_place integer := 0;
    data_place integer := 8;
BEGIN
    FOR i IN 0..63 LOOP
        CONTINUE WHEN written >> i & 1 = 0;
        of_body := gq.read_item(bodies, first_body, body_place);
        of_data := gq.read_item(datas, first_data, data_place);
        body_place := of_body.place;
        data_place := of_data.place;
        first_body := coalesce(first_body, of_body.item);
        first_data := coalesce(first_data, of_data.item);
        IF members >> i & 1 = 1 THEN
            seq := (first & -64) + i;
            body := of_body.item;
            data := of_data.item;
            RETURN NEXT;
        END IF;
    END LOOP;
END $$;

-- The first eight bytes of the AES of eight bytes and eight zeros.
CREATE FUNCTION gq.id_mask(secret bytea, random bigint) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    box constant bytea := decode(
        '637c777bf26b6fc53001672bfed7ab76ca82c97dfa5947f0add4a2af9ca472c0b7fd9326363ff7cc34a5e5f171d8311504c723c31896059a071280e2eb27b275'
        || '09832c1a1b6e5aa0523bd6b329e32f8453d100ed20fcb15b6acbbe394a4c58cfd0efaafb434d338545f9027f503c9fa851a3408f929d38f5bcb6da2110fff3d2'
        || 'cd0c13ec5f974417c4a77e3d645d197360814fdc222a908846eeb814de5e0bdbe0323a0a4906245cc2d3ac629195e479e7c8376d8dd54ea96c56f4ea657aae08'
        || 'ba78252e1ca6b4c6e8dd741f4bbd8b8a703eb5664803f60e613557b986c11d9ee1f8981169d98e949b1e87e9ce5528df8ca1890dbfe6426841992d0fb054bb16', 'hex');
    key bigint[]; -- four columns of four bytes for each round
    s bigint[];   -- the columns of the block
    t bigint[];
    w bigint;
    a integer; b integer; c integer; d integer;
    power integer := 1;
BEGIN
    FOR i IN 0..43 LOOP
        IF i < 4 THEN
            w := ('x' || encode(substring(secret FROM 4 * i + 1 FOR 4), 'hex'))::bit(32)::bigint;
        ELSE
            w := key[i - 1];
            IF i % 4 = 0 THEN
                w := ((get_byte(box, (w >> 16 & 255)::integer) # power)::bigint << 24) | (get_byte(box, (w >> 8 & 255)::integer) << 16)
                    | (get_byte(box, (w & 255)::integer) << 8) | get_byte(box, (w >> 24 & 255)::integer);
                power := power << 1 # (power >> 7) * 283;
            END IF;
            w := w # key[i - 4];
        END IF;
        key[i] := w;
    END LOOP;
    s[0] := (random >> 32 & 4294967295) # key[0];
    s[1] := (random & 4294967295) # key[1];
    s[2] := key[2];
    s[3] := key[3];
    FOR round IN 1..10 LOOP
        FOR i IN 0..3 LOOP
            a := get_byte(box, (s[i] >> 24 & 255)::integer);
            b := get_byte(box, (s[(i + 1) % 4] >> 16 & 255)::integer);
            c := get_byte(box, (s[(i + 2) % 4] >> 8 & 255)::integer);
            d := get_byte(box, (s[(i + 3) % 4] & 255)::integer);
            IF round = 10 THEN
                w := (a::bigint << 24) | (b << 16) | (c << 8) | d;
            ELSE -- doubling is a shift modulo 283
                w := (((a # b) << 1 # ((a # b) >> 7) * 283 # b # c # d)::bigint << 24)
                    | (((b # c) << 1 # ((b # c) >> 7) * 283 # c # d # a) << 16)
                    | (((c # d) << 1 # ((c # d) >> 7) * 283 # d # a # b) << 8)
                    | ((d # a) << 1 # ((d # a) >> 7) * 283 # a # b # c);
            END IF;
            t[i] := w # key[4 * round + i];
        END LOOP;
        s := t;
    END LOOP;
    RETURN (s[0] << 32) | s[1];
END $$;

-- The id of a job: the stored one, or if that has only the random bits, one made of its number too.
CREATE FUNCTION gq.job_id(secret bytea, seq bigint, native boolean, stored uuid) RETURNS uuid
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    random bigint;
    n bigint;
BEGIN
    IF NOT native THEN
        RETURN stored;
    END IF;
    random := ('x' || right(replace(stored::text, '-', ''), 16))::bit(64)::bigint & ((1::bigint << 58) - 1);
    n := seq # gq.id_mask(secret, random);
    RETURN encode(int8send((n >> 16 << 16) | (4 << 12) | (n >> 4 & 4095)) || int8send((1::bigint << 63) | ((n & 15) << 58) | random), 'hex')::uuid;
END $$;

-- All jobs that have not expired, with the names and values of the HTTP API. A queue or state is
-- looked for before anything is read from bytes. The id is computed for each row that is compared.
CREATE VIEW gq.jobs AS
SELECT
    gq.job_id(k.secret, s.seq, (r.j).native, (r.j).stored_id) AS id, s.queue, (r.j).type,
    (ARRAY['PENDING', 'DELAYED', 'SCHEDULED', 'CLAIMED', 'RUNNING', 'RETRYING', 'COMPLETED', 'FAILED', 'DEAD_LETTER', 'CANCELLED'])[
        CASE WHEN s.run_at <= n.now THEN 3 ELSE s.status END] AS state, -- what time has changed already
    CASE WHEN (r.j).detail > 0 THEN (ARRAY['CLAIMED', 'PREPARING', 'LEASE_PENDING', 'ASSIGNED'])[(r.j).detail] END AS detail,
    (ARRAY['CRITICAL', 'HIGH', 'NORMAL', 'LOW', 'BULK'])[(r.j).own] AS priority,
    (ARRAY['CRITICAL', 'HIGH', 'NORMAL', 'LOW', 'BULK'])[(r.j).effective] AS effective_priority,
    (r.j).attempt, (r.j).bound AS max_attempts, (r.j).waits,
    gq.instant((r.j).created) AS created_at, gq.instant((r.j).updated) AS updated_at, gq.instant((r.j).run_at) AS run_at,
    gq.instant(CASE WHEN s.run_at <= n.now AND (r.j).held_before IS NOT TRUE THEN s.run_at ELSE (r.j).scheduled END) AS scheduled_at,
    gq.instant((r.j).started) AS started_at, gq.instant((r.j).completed) AS completed_at,
    CASE WHEN s.attempting THEN (r.j).worker END AS worker, CASE WHEN s.attempting THEN (r.j).lease END AS lease_id,
    CASE WHEN s.attempting THEN gq.instant((r.j).expires) END AS lease_expires_at,
    (r.j).message AS error, (r.j).code AS error_code, (r.j).reason, (r.j).requester, (r.j).limit_key, (r.j).order_key, (r.j).workflow, (r.j).ref,
    CASE WHEN r.changed IS NULL THEN (r.j).tags ELSE coalesce(r.changed[3], '{}')::jsonb END AS tags,
    CASE WHEN r.changed IS NULL THEN (r.j).correlation ELSE nullif(r.changed[4], '') END AS correlation_id,
    s.seq AS sequence
FROM (
    SELECT seq, queue, status, CASE WHEN status IN (2, 6) THEN run_at END AS run_at, false AS attempting, body, data FROM gq.ready
    UNION ALL
    SELECT seq, queue, status, NULL, true, body, data FROM gq.held WHERE members IS NULL
    UNION ALL
    SELECT u.seq, h.queue, h.status, NULL, true, u.body, u.data
    FROM gq.held AS h
    CROSS JOIN LATERAL gq.unpack(h.seq, h.members, h.body, h.data) AS u
    WHERE h.members IS NOT NULL
    UNION ALL
    SELECT d.seq, d.queue, d.status, NULL, true, d.body, d.data
    FROM gq.done AS d
    WHERE d.members IS NULL AND NOT EXISTS (SELECT FROM gq.horizon AS h WHERE h.status = d.status AND (h.ended, h.seq) >= (d.ended, d.seq))
    UNION ALL
    SELECT u.seq, d.queue, d.status, NULL, true, u.body, u.data
    FROM gq.done AS d
    CROSS JOIN LATERAL gq.unpack(d.seq, d.members, d.body, d.data) AS u
    WHERE d.members IS NOT NULL AND NOT EXISTS (SELECT FROM gq.horizon AS h WHERE h.status = d.status AND (h.ended, h.seq) >= (d.ended, d.seq))
) AS s
CROSS JOIN gq.id_key AS k
CROSS JOIN (
    SELECT greatest(h.time, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000) AS now FROM gq.head AS h
) AS n
CROSS JOIN LATERAL ( -- OFFSET 0: read once, or not at all if a query needs neither
    SELECT gq.read_job(s.body, s.data) AS j,
        (SELECT gq.read_fields(b.data, 0, 'bbmss') FROM gq.blob AS b WHERE b.seq = s.seq AND b.part = 4) AS changed -- tags and the like
    OFFSET 0
) AS r;

-- The scheduler API

-- The jobs that have not expired.
CREATE VIEW gq.report_kept AS
SELECT r.*
FROM gq.report AS r
WHERE NOT EXISTS (SELECT FROM gq.horizon AS h WHERE h.status = r.status AND (h.ended, h.seq) >= (r.completed, r.seq));

-- The queues of the scheduler API: those that share its pool.
CREATE VIEW gq.scheduler_addon AS
SELECT q.name FROM gq.queue AS q WHERE q.config ->> 'Pool' = 'scheduler';

CREATE VIEW gq_scheduler.scheduler_job_runs AS
SELECT
    r.id AS job_id, r.queue AS addon_id, r.type AS job_type, r.priority, r.cost AS cost_units, r.scheduler_state AS state, r.attempts,
    gq.instant(r.created) AS created_at, gq.instant(r.started) AS started_at, gq.instant(r.completed) AS finished_at,
    r.claimed_by, r.last_run AS lease_id, f.status AS final_status,
    CASE WHEN f.status = 'SUCCEEDED' AND w.framed THEN nullif(w.report ->> 'error', '') -- a warning
        WHEN f.status <> 'SUCCEEDED' THEN coalesce(w.report ->> 'error', nullif(r.failure, ''), nullif(r.reason, '')) END AS error_text,
    CASE WHEN f.status IS NOT NULL THEN nullif(CASE
        WHEN w.framed THEN w.report -> 'result_data'
        WHEN w.report IS NULL THEN to_jsonb(translate(encode(w.result, 'base64'), E'\n', ''))
        ELSE w.report
    END, 'null') END AS result_json,
    CASE WHEN f.status IS NOT NULL AND w.framed THEN nullif(w.report -> 'metrics', 'null') END AS metrics_json
FROM gq.report_kept AS r
CROSS JOIN LATERAL (
    SELECT CASE WHEN r.completed IS NULL THEN NULL WHEN r.scheduler_state = 'DONE' THEN 'SUCCEEDED' ELSE r.scheduler_state END AS status
) AS f
LEFT JOIN LATERAL ( -- OFFSET 0: each result is looked up by its key and parsed once
    SELECT p.result, p.report,
        p.report <> '{}' AND jsonb_typeof(p.report) = 'object' AND p.report - '{result_data,error,metrics}'::text[] = '{}' AS framed
    FROM (
        SELECT b.data AS result, gq.read_json(b.data) AS report
        FROM gq.blob AS b
        WHERE b.seq = r.seq AND b.part = 2 AND length(b.data) > 0
        OFFSET 0
    ) AS p
    OFFSET 0
) AS w ON true
WHERE r.queue IN (SELECT a.name FROM gq.scheduler_addon AS a);

-- Every lease under which a job ran. The settings are for tables that have no statistics yet:
-- hash joins are fast for any number of rows, and nested loops are not.
CREATE FUNCTION gq.scheduler_leases() RETURNS TABLE (
    lease_id text, job_id uuid, addon_id text, cost_units bigint, ttl_sec bigint, granted_at timestamptz, last_heartbeat_at timestamptz,
    released_at timestamptz, expires_at timestamptz, state text, release_status text
) LANGUAGE sql STABLE SET enable_nestloop = off SET enable_mergejoin = off SET jit = off AS $$
    WITH run AS ( -- each start with the end of its lease
        SELECT e.job, e.lease, e.until, e.cost, s.time, x.time AS over, x.final, x.lease_state AS ended, x.beat AS last
        FROM gq.report_event AS e
        JOIN gq.segment AS s ON s.id = e.segment AND s.seq IS NOT NULL
        LEFT JOIN (
            SELECT x.job, x.lease, x.final, x.lease_state, x.beat, s.time
            FROM gq.report_event AS x
            JOIN gq.segment AS s ON s.id = x.segment AND s.seq IS NOT NULL
            WHERE x.ends_run
        ) AS x ON x.job = e.job AND x.lease = e.lease
        WHERE e.type = 'job.started' AND e.queue IN (SELECT a.name FROM gq.scheduler_addon AS a)
    )
    SELECT
        e.lease, r.id, r.queue, l.cost, (l.ttl + 999999999) / 1000000000, gq.instant(l.granted), gq.instant(l.beat),
        CASE WHEN l.state = 'RELEASED' THEN gq.instant(e.over) END,
        gq.instant(l.expires), l.state,
        CASE WHEN l.state = 'RELEASED' AND e.final THEN CASE r.scheduler_state WHEN 'DONE' THEN 'SUCCEEDED' ELSE r.scheduler_state END END
    FROM run AS e
    JOIN gq.report_kept AS r ON r.id = e.job
    CROSS JOIN LATERAL ( -- gq.report has the newest data of the job's last lease
        SELECT
            CASE WHEN r.lease = e.lease THEN r.lease_cost ELSE e.cost END AS cost,
            CASE WHEN r.lease = e.lease THEN r.ttl ELSE e.until - e.time END AS ttl,
            CASE WHEN r.lease = e.lease THEN r.granted ELSE e.time END AS granted,
            CASE WHEN r.lease = e.lease THEN r.beat ELSE coalesce(e.last, e.time) END AS beat,
            CASE WHEN r.lease = e.lease THEN r.expires ELSE coalesce(e.last + e.until - e.time, e.until) END AS expires,
            CASE WHEN r.lease = e.lease THEN r.lease_state ELSE coalesce(e.ended, 'ACTIVE') END AS state
    ) AS l
$$;

CREATE VIEW gq_scheduler.scheduler_lease_runs AS SELECT * FROM gq.scheduler_leases();

-- Every event has two ids: an even one for the change of its lease, and an odd one for the
-- change of its job.
CREATE VIEW gq_scheduler.scheduler_events AS
SELECT
    2 * (s.seq + e.place) + CASE v.about WHEN 'JOB' THEN 1 ELSE 0 END AS id, gq.instant(s.time) AS ts,
    v.about AS entity_type, CASE v.about WHEN 'JOB' THEN e.job::text ELSE e.lease END AS entity_id,
    v.name AS event_type, jsonb_strip_nulls(v.data) AS data_json
FROM gq.report_event AS e
JOIN gq.segment AS s ON s.id = e.segment
CROSS JOIN LATERAL (
    SELECT 'LEASE' AS about, CASE e.lease_state WHEN 'EXPIRED' THEN 'LEASE_EXPIRED' ELSE 'LEASE_RELEASED' END AS name,
        jsonb_build_object('job_id', e.job, 'worker_id', nullif(e.worker, ''), 'cost_units', e.cost) AS data
    WHERE e.ends_run
    UNION ALL
    SELECT 'LEASE', 'LEASE_GRANTED', jsonb_build_object(
        'job_id', e.job, 'worker_id', nullif(e.worker, ''), 'cost_units', e.cost, 'expires_at', gq.stamp(e.until))
    WHERE e.type = 'job.started'
    UNION ALL
    SELECT 'LEASE', 'LEASE_RENEWED', jsonb_build_object('job_id', e.job, 'worker_id', nullif(e.worker, ''), 'expires_at', gq.stamp(e.until))
    WHERE e.type = 'lease.renewed'
    UNION ALL
    SELECT 'JOB', CASE e.type
            WHEN 'job.submitted' THEN 'JOB_SUBMITTED'
            WHEN 'job.claimed' THEN 'JOB_CLAIMED'
            WHEN 'job.retrying' THEN 'JOB_REQUEUED'
            WHEN 'job.scheduled' THEN 'JOB_REQUEUED'
            WHEN 'job.cancel_requested' THEN 'JOB_CANCEL_REQUESTED'
            WHEN 'job.cancel_delivered' THEN 'JOB_CANCEL_DELIVERED'
            WHEN 'job.updated' THEN CASE WHEN e.reason LIKE 'capacity exceeded: used=%' THEN 'LEASE_DENIED' ELSE 'JOB_UPDATED' END
            ELSE 'JOB_' || e.scheduler_state
        END,
        CASE e.type
            WHEN 'job.submitted' THEN CASE WHEN e.job IN (SELECT r.id FROM gq.report_kept AS r) THEN e.submitted ELSE '{}' END
            WHEN 'job.updated' THEN CASE WHEN e.reason LIKE 'capacity exceeded: used=%' THEN jsonb_build_object(
                'worker_id', nullif(e.worker, ''),
                'used', substring(e.reason FROM 'used=([0-9]+)')::bigint,
                'requested', substring(e.reason FROM 'requested=([0-9]+)')::bigint,
                'capacity', substring(e.reason FROM 'capacity=([0-9]+)')::bigint,
                'count', coalesce(( -- the next denial is the end of the same row, or follows a row of one
                    SELECT split_part(x.reason, 'count=', 2)::bigint
                    FROM gq.report_event AS x
                    JOIN gq.segment AS y ON y.id = x.segment
                    WHERE x.job = e.job AND x.type = 'job.updated' AND x.reason LIKE 'capacity exceeded: used=%'
                        AND y.seq + x.place > s.seq + e.place
                    ORDER BY y.seq + x.place
                    LIMIT 1
                ), (
                    SELECT split_part(r.reason, 'count=', 2)::bigint
                    FROM gq.report_kept AS r
                    WHERE r.id = e.job AND r.completed IS NULL AND r.reason LIKE 'capacity exceeded: used=%'
                ), 1)
            ) ELSE '{}' END
            ELSE jsonb_build_object(
                'worker_id', CASE WHEN e.type <> 'job.cancel_requested' THEN nullif(e.worker, '') END,
                'lease_id', CASE WHEN e.ends_run OR e.type = 'job.started' THEN nullif(e.lease, '') END,
                'attempt', CASE WHEN e.type = 'job.started' THEN e.attempt END,
                'claim_expires_at', CASE WHEN e.type = 'job.claimed' THEN gq.stamp(e.until) END,
                'next_retry_at', CASE WHEN e.type = 'job.retrying' THEN gq.stamp(e.until) END,
                'error', CASE WHEN e.type IN ('job.failed', 'job.dead_lettered', 'job.retrying') THEN nullif(e.message, '') END,
                'reason', CASE WHEN e.type IN (
                    'job.failed', 'job.dead_lettered', 'job.retrying', 'job.scheduled', 'job.cancelled', 'job.cancel_requested'
                ) THEN nullif(e.reason, '') END)
        END
    WHERE e.type NOT IN ('job.delayed', 'lease.renewed') AND (e.type <> 'job.scheduled' OR e.lease <> '')
        AND NOT (e.type = 'job.updated' AND e.lease = '' AND coalesce(e.reason, '') LIKE 'capacity exceeded: used=%') -- the end of a row of denials
) AS v
WHERE s.seq IS NOT NULL AND e.queue IN (SELECT a.name FROM gq.scheduler_addon AS a);

-- The document on matching
--
-- The queue "matching". Instants are seconds since 1970, as in the document.

-- The policy in force (the one set by a call, or else the one that servers were configured
-- with), the time known to the database, the epoch, and the horizon.
CREATE VIEW gq.matching_now AS
SELECT p.policy, t.now, coalesce((b.beacon ->> 'epoch_id')::bigint, t.now / 1000000000 / (p.policy -> 'seed' ->> 'epoch_secs')::bigint) AS epoch,
    t.now - (p.policy -> 'ttl' ->> 'gc_horizon_secs')::bigint * 1000000000 AS horizon
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

-- The weights of the policy, as the integers that package match computes with.
CREATE VIEW gq.matching_weights AS
SELECT
    (w.p ->> 'w_fee_ppb')::bigint AS fee, (w.p ->> 'fee_ref')::bigint AS fee_ref, (w.p ->> 'w_size_ppb')::bigint AS size,
    (w.p ->> 'size_ref_bytes')::bigint AS size_ref, (w.p ->> 'w_tier_ppb')::bigint AS tier, w.p -> 'tiers' AS tiers,
    (w.p ->> 'w_age_ppb')::bigint AS age,
    coalesce((w.p ->> 'age_ref_ai_secs')::bigint, 86400) AS age_ref_ai, coalesce((w.p ->> 'age_ref_quantum_secs')::bigint, 7200) AS age_ref_quantum
FROM (SELECT n.policy -> 'priority' AS p FROM gq.matching_now AS n) AS w;

-- match.Priority.Cached in SQL, because a change of policy changes every score. Parts per
-- billion; every quotient is rounded down. A test compares the two.
CREATE FUNCTION gq.matching_priority(
    w gq.matching_weights, kind text, max_fee bigint, size_bytes bigint, tier text, enqueued bigint
) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN w.fee * least(max_fee, w.fee_ref) / w.fee_ref
    + w.size * w.size_ref / (w.size_ref + size_bytes)
    + w.tier * coalesce((w.tiers ->> tier)::bigint, 0) / 1000000000
    - w.age * enqueued / CASE kind WHEN 'AI' THEN w.age_ref_ai ELSE w.age_ref_quantum END;

-- The jobs of the queue, except those that ended longer ago than the policy's horizon.
CREATE VIEW gq.matching_job AS
WITH n AS MATERIALIZED (SELECT horizon FROM gq.matching_now)
SELECT r.*
FROM gq.report_kept AS r
CROSS JOIN n
WHERE r.queue = 'matching' AND r.type IN ('AI', 'QUANTUM') AND (r.completed IS NULL OR n.horizon IS NULL OR r.completed > n.horizon);

CREATE VIEW gq_matching.jobs AS
WITH w AS MATERIALIZED (SELECT * FROM gq.matching_weights)
SELECT
    m.id, m.type AS kind, coalesce(m.asks -> 'spec', '{}') AS spec, m.matching_state AS state,
    gq.matching_priority(w, m.type, m.max_fee, t.size_bytes, t.tier, t.enqueued) AS priority_cache,
    t.enqueued AS enqueue_ts, m.faults AS attempts, m.lifetime / 1000000000 AS ttl_abs,
    (m.first_started + m.run_lifetime) / 1000000000 AS ttl_rel_deadline,
    m.requester, t.size_bytes, m.max_fee, t.tier, m.failure_code AS last_error, m.completed IS NOT NULL AS tombstoned
FROM gq.matching_job AS m
CROSS JOIN w
CROSS JOIN LATERAL (
    SELECT coalesce(nullif(m.tier, ''), 'FREE') AS tier, m.created / 1000000000 AS enqueued,
        coalesce((m.asks ->> 'size_bytes')::bigint, 0) AS size_bytes
) AS t
WHERE m.asks IS NOT NULL;

-- The jobs in the order in which rounds take them. Rounds read them by the index report_job_index,
-- which a server makes for the policy in force: see job_index.go.
CREATE VIEW gq_matching.job_index AS
SELECT j.kind, j.state, j.priority_cache
FROM gq_matching.jobs AS j
ORDER BY j.kind, j.state, j.priority_cache DESC, j.enqueue_ts, j.id::text COLLATE "C";

-- All leases of these jobs. Events are read even before they have numbers, so that a lease is
-- visible with the commit of its round. See gq.scheduler_leases for the settings.
CREATE FUNCTION gq.matching_leases() RETURNS TABLE (
    id text, job_id uuid, provider_id text, attempt bigint, t_start bigint, t_deadline bigint, renew_by bigint, status text
) LANGUAGE sql STABLE SET enable_nestloop = off SET enable_mergejoin = off SET jit = off AS $$
    WITH event AS MATERIALIZED (
        SELECT e.job, e.lease, e.segment, e.place, e.type, e.lease_end, e.fault, e.worker, e.until, s.time
        FROM gq.report_event AS e
        JOIN gq.segment AS s ON s.id = e.segment
        WHERE e.queue = 'matching' AND (e.type IN ('job.claimed', 'job.started', 'lease.renewed') OR e.lease_end IS NOT NULL OR e.fault)
    ), ended AS (
        SELECT DISTINCT ON (e.job, e.lease) e.job, e.lease, e.segment, e.place, e.lease_end
        FROM event AS e
        WHERE e.lease_end IS NOT NULL
        ORDER BY e.job, e.lease, e.segment, e.place
    ), moved AS ( -- acknowledgement and renewals extend the deadline
        SELECT e.job, e.lease, max(e.until) AS until, count(*) FILTER (WHERE e.type = 'lease.renewed') AS renewals
        FROM event AS e
        LEFT JOIN ended AS x USING (job, lease)
        WHERE e.type IN ('job.started', 'lease.renewed') AND (x.job IS NULL OR (e.segment, e.place) < (x.segment, x.place))
        GROUP BY e.job, e.lease
    ), failed AS ( -- how many faults came since each lease; earlier ones may be of the job whose place this one took
        SELECT e.job, e.lease, count(*) AS faults
        FROM event AS e
        JOIN event AS f ON f.job = e.job AND f.fault AND (f.segment, f.place) > (e.segment, e.place)
        WHERE e.type = 'job.claimed'
        GROUP BY e.job, e.lease
    ), lease AS (
        SELECT
            c.lease, c.job, c.worker AS provider, coalesce(f.faults, 0) AS faults, c.time AS started, g.until, g.renewals, x.lease_end AS ended
        FROM event AS c
        LEFT JOIN ended AS x USING (job, lease)
        LEFT JOIN moved AS g USING (job, lease)
        LEFT JOIN failed AS f USING (job, lease)
        WHERE c.type = 'job.claimed' AND c.lease <> ''
    )
    SELECT
        l.lease, l.job, l.provider, greatest(m.faults - l.faults, 0), l.started / 1000000000, d.deadline / 1000000000, (d.deadline - m.renew_before) / 1000000000,
        coalesce(l.ended, CASE WHEN l.renewals > 0 THEN 'RENEWED' ELSE 'ACTIVE' END)
    FROM lease AS l
    JOIN gq.matching_job AS m ON m.id = l.job
    CROSS JOIN LATERAL (SELECT coalesce(l.until, l.started + m.policy_ttl) AS deadline) AS d
$$;

CREATE VIEW gq_matching.leases AS SELECT * FROM gq.matching_leases();

-- The leases and the used units of providers. Units are those of the epoch in windows;
-- cooldowns are as of the last commit of a round or of the provider.
CREATE VIEW gq_matching.provider_quotas AS
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
    SELECT r.worker, count(*) AS leases FROM gq.report AS r WHERE r.queue = 'matching' AND r.held GROUP BY r.worker
) AS h ON h.worker = p.name
WHERE p.kind = 'matching.provider';

COMMENT ON VIEW gq.jobs IS 'All jobs. The views have the number @NUMBER@.';
