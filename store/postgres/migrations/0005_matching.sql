-- Layout 5: the tables of the document on matching, as views for those who read
-- with SQL.
--
-- They hold the jobs of the queue "matching", which is the one that servers hold
-- rounds over. Instants are seconds since 1970, as on the face. What the
-- dispatcher keeps in documents is JSON; everything else is decoded by the
-- functions of layout 4. Nothing here is written, so nothing can disagree with
-- what a commit says.

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

-- All leases that a job has had. Its events are read whether or not they have
-- their numbers yet, so that a lease is there with the commit of its round.
CREATE FUNCTION gq.matching_leases(data bytea, of uuid, length bigint) RETURNS TABLE (
    id text, provider text, attempt bigint, started bigint, deadline bigint, status text
) LANGUAGE sql STABLE STRICT AS $$
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

CREATE VIEW gq.leases AS
SELECT
    l.id, m.id AS job_id, l.provider AS provider_id, l.attempt, l.started / 1000000000 AS t_start, l.deadline / 1000000000 AS t_deadline,
    (l.deadline - (m.length - (m.length / 1000000000 * m.renew_by + m.length % 1000000000 * m.renew_by / 1000000000))) / 1000000000 AS renew_by,
    l.status
FROM gq.matching_job AS m
CROSS JOIN LATERAL gq.matching_leases(m.data, m.id, m.length) AS l;

-- What providers hold and were given. Units are those of the epoch that windows
-- names; pauses are as the last commit of a round or of the provider has them.
CREATE VIEW gq.provider_quotas AS
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
    FROM gq.live AS r
    CROSS JOIN LATERAL gq.read_state(r.data) AS s
    WHERE r.queue = 'matching' AND r.status IN (4, 5)
    GROUP BY s.worker
) AS h ON h.worker = p.name
WHERE p.kind = 'matching.provider';

INSERT INTO gq.migration (version) VALUES (5);
