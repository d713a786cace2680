-- The tables of format 1. schema.py fills in ${prefix}, which every name begins with, and ${schema}, with its dot.
-- An index is in the schema of its table.
-- Columns of fixed width come first, so that no row is padded.

CREATE TABLE ${schema}"${prefix}threads" (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    thread_id text COLLATE "C" NOT NULL UNIQUE,
    last_seq bigint NOT NULL,
    removals bigint NOT NULL DEFAULT 0,
    expires_at timestamptz
) WITH (fillfactor = 80);

CREATE TABLE ${schema}"${prefix}checkpoints" (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    thread bigint NOT NULL,
    seq bigint NOT NULL,
    created_at timestamptz NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    checkpoint_id text COLLATE "C" NOT NULL,
    parent_id text COLLATE "C",
    rev text COLLATE "C" NOT NULL,
    metadata jsonb NOT NULL,
    head json NOT NULL,
    manifest json NOT NULL
);
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
);

CREATE TABLE ${schema}"${prefix}writes" (
    thread bigint NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    checkpoint_id text COLLATE "C" NOT NULL,
    task_id text COLLATE "C" NOT NULL,
    idx integer NOT NULL,
    task_path text COLLATE "C" NOT NULL,
    channel text COLLATE "C" NOT NULL,
    value jsonb NOT NULL
);
CREATE INDEX "${prefix}writes_by_checkpoint" ON ${schema}"${prefix}writes" (thread, namespace, checkpoint_id);

CREATE TABLE ${schema}"${prefix}search" (
    thread bigint NOT NULL,
    seq bigint NOT NULL,
    branch text COLLATE "C",
    number integer,
    words tsvector
);
CREATE INDEX "${prefix}search_by_thread" ON ${schema}"${prefix}search" (thread, seq);
CREATE INDEX "${prefix}search_by_words" ON ${schema}"${prefix}search" USING gin (words);
CREATE INDEX "${prefix}search_too_large" ON ${schema}"${prefix}search" (thread) WHERE words IS NULL;

CREATE TABLE ${schema}"${prefix}indexed" (thread bigint PRIMARY KEY, up_to bigint NOT NULL);
