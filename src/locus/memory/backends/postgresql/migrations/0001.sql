-- The tables of format 1. {{runs}} stands for the name of a table, {{index:runs_by_id}} for the name of an index.
-- Columns of fixed width come first, so that no row is padded.

CREATE TABLE {{threads}} (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    thread_id text COLLATE "C" NOT NULL UNIQUE,
    last_seq bigint NOT NULL,
    removals bigint NOT NULL DEFAULT 0,
    expires_at timestamptz
) WITH (fillfactor = 80);

CREATE TABLE {{checkpoints}} (
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
CREATE UNIQUE INDEX {{index:checkpoints_by_id}} ON {{checkpoints}} (thread, namespace, checkpoint_id);
-- By the expression that `PostgreSQLFlavour.in_order` gives, and not by the column.
CREATE UNIQUE INDEX {{index:checkpoints_by_seq}} ON {{checkpoints}} ((namespace || ''), thread, seq);
CREATE INDEX {{index:checkpoints_by_metadata}} ON {{checkpoints}}
    USING gin (metadata jsonb_path_ops) WHERE metadata <> '{}';

CREATE TABLE {{runs}} (
    thread bigint NOT NULL,
    seq bigint NOT NULL,
    number integer NOT NULL,
    start integer NOT NULL,
    count integer NOT NULL,
    branch text COLLATE "C" NOT NULL,
    items jsonb NOT NULL,
    PRIMARY KEY (thread, branch, number) INCLUDE (start, count, seq)
);

CREATE TABLE {{writes}} (
    thread bigint NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    checkpoint_id text COLLATE "C" NOT NULL,
    task_id text COLLATE "C" NOT NULL,
    idx integer NOT NULL,
    task_path text COLLATE "C" NOT NULL,
    channel text COLLATE "C" NOT NULL,
    value jsonb NOT NULL
);
CREATE INDEX {{index:writes_by_checkpoint}} ON {{writes}} (thread, namespace, checkpoint_id);

CREATE TABLE {{search}} (
    thread bigint NOT NULL,
    seq bigint NOT NULL,
    branch text COLLATE "C",
    number integer,
    words tsvector
);
CREATE INDEX {{index:search_by_thread}} ON {{search}} (thread, seq);
CREATE INDEX {{index:search_by_words}} ON {{search}} USING gin (words);
CREATE INDEX {{index:search_too_large}} ON {{search}} (thread) WHERE words IS NULL;

CREATE TABLE {{indexed}} (thread bigint PRIMARY KEY, up_to bigint NOT NULL);
