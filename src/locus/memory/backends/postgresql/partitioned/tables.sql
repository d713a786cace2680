-- The tables of format 1, partitioned by the hash of the thread: the same as migrations/0001.sql, but for what a
-- partitioned table cannot have. schema.py fills in ${schema} and ${prefix}, and adds the partitions of each table.
-- The threads are in one table: two of their columns are unique, and a unique index of a partitioned table has to
-- contain what it is partitioned by.

CREATE TABLE ${schema}"${prefix}threads" (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    thread_id text COLLATE "C" NOT NULL UNIQUE,
    last_seq bigint NOT NULL,
    removals bigint NOT NULL DEFAULT 0,
    expires_at timestamptz
) WITH (fillfactor = 80);

-- Before PostgreSQL 17 a partitioned table has no identity column.
CREATE SEQUENCE ${schema}"${prefix}checkpoints_ids" AS bigint;
CREATE TABLE ${schema}"${prefix}checkpoints" (
    id bigint NOT NULL DEFAULT nextval('${schema}"${prefix}checkpoints_ids"'),
    thread bigint NOT NULL,
    seq bigint NOT NULL,
    created_at timestamptz NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    checkpoint_id text COLLATE "C" NOT NULL,
    parent_id text COLLATE "C",
    rev text COLLATE "C" NOT NULL,
    metadata jsonb NOT NULL,
    head json NOT NULL,
    manifest json NOT NULL,
    PRIMARY KEY (id, thread)
) PARTITION BY HASH (thread);
ALTER SEQUENCE ${schema}"${prefix}checkpoints_ids" OWNED BY ${schema}"${prefix}checkpoints".id;
CREATE UNIQUE INDEX "${prefix}checkpoints_by_id" ON ${schema}"${prefix}checkpoints" (thread, namespace, checkpoint_id);
-- By the expression that `PostgreSQLFlavour.in_order` gives, and not by the column.
CREATE UNIQUE INDEX "${prefix}checkpoints_by_seq" ON ${schema}"${prefix}checkpoints" ((namespace || ''), thread, seq);
CREATE INDEX "${prefix}checkpoints_by_metadata" ON ${schema}"${prefix}checkpoints"
    USING gin (metadata jsonb_path_ops) WHERE metadata <> '{}';

CREATE TABLE ${schema}"${prefix}runs" (
    thread bigint NOT NULL,
    seq bigint NOT NULL,
    number integer NOT NULL,
    start integer NOT NULL,
    count integer NOT NULL,
    branch text COLLATE "C" NOT NULL,
    items jsonb NOT NULL,
    PRIMARY KEY (thread, branch, number) INCLUDE (start, count, seq)
) PARTITION BY HASH (thread);

CREATE TABLE ${schema}"${prefix}writes" (
    thread bigint NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    checkpoint_id text COLLATE "C" NOT NULL,
    task_id text COLLATE "C" NOT NULL,
    idx integer NOT NULL,
    task_path text COLLATE "C" NOT NULL,
    channel text COLLATE "C" NOT NULL,
    value jsonb NOT NULL
) PARTITION BY HASH (thread);
CREATE INDEX "${prefix}writes_by_checkpoint" ON ${schema}"${prefix}writes" (thread, namespace, checkpoint_id);

CREATE TABLE ${schema}"${prefix}search" (
    thread bigint NOT NULL,
    seq bigint NOT NULL,
    branch text COLLATE "C",
    number integer,
    words tsvector
) PARTITION BY HASH (thread);
CREATE INDEX "${prefix}search_by_thread" ON ${schema}"${prefix}search" (thread, seq);
CREATE INDEX "${prefix}search_by_words" ON ${schema}"${prefix}search" USING gin (words);
CREATE INDEX "${prefix}search_too_large" ON ${schema}"${prefix}search" (thread) WHERE words IS NULL;

CREATE TABLE ${schema}"${prefix}indexed" (thread bigint PRIMARY KEY, up_to bigint NOT NULL) PARTITION BY HASH (thread);
