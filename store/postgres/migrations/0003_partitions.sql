-- Layout 3: what has happened is kept in partitions and dropped with them.
--
-- The numbers of jobs and of segments begin with the day on which they were
-- given: the day since 1970 in the upper bits, 32 bits to count. So the tables
-- that are looked up by these numbers are partitioned by time, each lookup goes
-- to one partition, and a row need not say the day. What an older layout has
-- written has small numbers and is the oldest partition.
--
-- A job that is past its retention is gone when its number has been passed by
-- gq.horizon; its rows go with the partition, and what is left of a partition in
-- which almost nothing is left goes into the one that takes its place. Nothing
-- in these tables is ever deleted.

-- How far retention has got, for each way to end: up to and with this job.
CREATE TABLE gq.horizon (
    status smallint PRIMARY KEY,
    ended  bigint   NOT NULL,
    seq    bigint   NOT NULL
) WITH (fillfactor = 10);

-- Which job has an id. It is not history but the way into it: ids are random, and
-- to look for one in every partition would read a page of each. A row goes with
-- its job.
CREATE TABLE gq.name (
    id  uuid   PRIMARY KEY,
    seq bigint NOT NULL
);

INSERT INTO gq.name (id, seq) SELECT id, seq FROM gq.job;

-- The tables become the oldest partition of themselves.
ALTER TABLE gq.job DROP CONSTRAINT job_id_key;
ALTER TABLE gq.segment DROP COLUMN jobs;
DROP INDEX gq.done_ended;

ALTER TABLE gq.job RENAME TO job_0;
ALTER TABLE gq.done RENAME TO done_0;
ALTER TABLE gq.blob RENAME TO blob_0;
ALTER TABLE gq.segment RENAME TO segment_0;
ALTER TABLE gq.log RENAME TO log_0;

ALTER INDEX gq.job_pkey RENAME TO job_0_pkey;
ALTER INDEX gq.done_pkey RENAME TO done_0_pkey;
ALTER INDEX gq.blob_pkey RENAME TO blob_0_pkey;
ALTER INDEX gq.segment_pkey RENAME TO segment_0_pkey;
ALTER INDEX gq.segment_fresh RENAME TO segment_0_fresh;
ALTER INDEX gq.segment_seq RENAME TO segment_0_seq;
ALTER INDEX gq.log_pkey RENAME TO log_0_pkey;

CREATE TABLE gq.job (LIKE gq.job_0, PRIMARY KEY (seq)) PARTITION BY RANGE (seq);
CREATE TABLE gq.done (LIKE gq.done_0, PRIMARY KEY (seq)) PARTITION BY RANGE (seq);
CREATE TABLE gq.blob (LIKE gq.blob_0, PRIMARY KEY (seq, part)) PARTITION BY RANGE (seq);
CREATE TABLE gq.segment (LIKE gq.segment_0, PRIMARY KEY (id)) PARTITION BY RANGE (id);
CREATE TABLE gq.log (LIKE gq.log_0 INCLUDING STORAGE, PRIMARY KEY (id)) PARTITION BY RANGE (id);

-- Retention walks the jobs that ended in one way in the order in which they did.
-- The number is an expression so that nobody is planned to look for one in here.
CREATE INDEX done_ended ON gq.done (status, ended, (seq + 0));
CREATE INDEX segment_fresh ON gq.segment (id) WHERE seq IS NULL;
CREATE INDEX segment_seq ON gq.segment (seq) WHERE seq IS NOT NULL;

-- From which number on a day has its own: the next one that has not begun
-- anywhere.
DO $$
DECLARE
    until bigint := (extract(epoch FROM clock_timestamp())::bigint / 86400) << 32;
BEGIN
    EXECUTE format('ALTER TABLE gq.job ATTACH PARTITION gq.job_0 FOR VALUES FROM (MINVALUE) TO (%s)', until);
    EXECUTE format('ALTER TABLE gq.done ATTACH PARTITION gq.done_0 FOR VALUES FROM (MINVALUE) TO (%s)', until);
    EXECUTE format('ALTER TABLE gq.blob ATTACH PARTITION gq.blob_0 FOR VALUES FROM (MINVALUE) TO (%s)', until);
    EXECUTE format('ALTER TABLE gq.segment ATTACH PARTITION gq.segment_0 FOR VALUES FROM (MINVALUE) TO (%s)', until);
    EXECUTE format('ALTER TABLE gq.log ATTACH PARTITION gq.log_0 FOR VALUES FROM (MINVALUE) TO (%s)', until);
END $$;

-- The partitions: which numbers are where. The catalog knows it too, as text.
CREATE TABLE gq.partition (
    name  text   COLLATE "C" PRIMARY KEY, -- what follows the name of the table
    first bigint NOT NULL UNIQUE,         -- number
    past  bigint NOT NULL UNIQUE,         -- the first number of the next one
    gone  bigint NOT NULL DEFAULT 0       -- events up to this one may have been dropped from it
);

INSERT INTO gq.partition (name, first, past)
VALUES ('0', -9223372036854775808, (extract(epoch FROM clock_timestamp())::bigint / 86400) << 32);

INSERT INTO gq.migration (version) VALUES (3);
