-- Oracle Database. schema.py fills in ${schema}, which is empty or ends with a dot, and ${prefix}, the beginning of
-- every table name, and sends one statement at a time. A constraint belongs to the schema of its table, so its name
-- has no ${schema}.
-- Format 1: the first tables.

CREATE TABLE ${schema}${prefix}threads (
    id NUMBER(19) GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    thread_id VARCHAR2(510 CHAR) NOT NULL UNIQUE,
    last_seq NUMBER(19) NOT NULL,
    removals NUMBER(19) DEFAULT 0 NOT NULL,
    expires_at NUMBER(19),
    indexed_seq NUMBER(19) DEFAULT 0 NOT NULL
);

CREATE INDEX ${schema}${prefix}threads_by_end ON ${schema}${prefix}threads (expires_at);

-- `unindexed()` in schema.py is this expression; a query has to repeat it for the index to be used.
CREATE INDEX ${schema}${prefix}threads_unindexed ON ${schema}${prefix}threads (CASE WHEN last_seq > indexed_seq THEN id END);

-- ORDER keeps the numbers in order on a cluster, too: the newest checkpoints of all threads have the highest ids.
CREATE TABLE ${schema}${prefix}checkpoints (
    id NUMBER(19) GENERATED ALWAYS AS IDENTITY (CACHE 1000 ORDER) PRIMARY KEY,
    thread NUMBER(19) NOT NULL REFERENCES ${schema}${prefix}threads (id) ON DELETE CASCADE,
    seq NUMBER(19) NOT NULL,
    created_at NUMBER(19) NOT NULL,
    namespace VARCHAR2(510 CHAR) NOT NULL,
    checkpoint_id VARCHAR2(510 CHAR) NOT NULL,
    parent_id VARCHAR2(510 CHAR),
    rev VARCHAR2(64) NOT NULL,
    metadata JSON NOT NULL,
    head JSON NOT NULL,
    manifest JSON NOT NULL,
    CONSTRAINT ${prefix}checkpoints_by_id UNIQUE (thread, namespace, checkpoint_id),
    CONSTRAINT ${prefix}checkpoints_by_seq UNIQUE (thread, namespace, seq)
);

CREATE TABLE ${schema}${prefix}runs (
    thread NUMBER(19) NOT NULL REFERENCES ${schema}${prefix}threads (id) ON DELETE CASCADE,
    branch VARCHAR2(64) NOT NULL,
    num NUMBER(10) NOT NULL,
    begins NUMBER(10) NOT NULL,
    count NUMBER(10) NOT NULL,
    seq NUMBER(19) NOT NULL,
    items JSON NOT NULL,
    CONSTRAINT ${prefix}runs_by_branch PRIMARY KEY (thread, branch, num)
);

CREATE INDEX ${schema}${prefix}runs_by_seq ON ${schema}${prefix}runs (thread, seq);

CREATE TABLE ${schema}${prefix}writes (
    thread NUMBER(19) NOT NULL REFERENCES ${schema}${prefix}threads (id) ON DELETE CASCADE,
    namespace VARCHAR2(510 CHAR) NOT NULL,
    checkpoint_id VARCHAR2(510 CHAR) NOT NULL,
    task_id VARCHAR2(510 CHAR) NOT NULL,
    idx NUMBER(10) NOT NULL,
    task_path VARCHAR2(510 CHAR) NOT NULL,
    channel VARCHAR2(510 CHAR) NOT NULL,
    value JSON NOT NULL
);

CREATE INDEX ${schema}${prefix}writes_by_checkpoint ON ${schema}${prefix}writes (thread, namespace, checkpoint_id);

CREATE TABLE ${schema}${prefix}pairs (
    thread NUMBER(19) NOT NULL REFERENCES ${schema}${prefix}threads (id) ON DELETE CASCADE,
    namespace VARCHAR2(510 CHAR) NOT NULL,
    seq NUMBER(19) NOT NULL,
    pair VARCHAR2(64) NOT NULL,
    CONSTRAINT ${prefix}pairs_by_checkpoint PRIMARY KEY (thread, seq, pair)
);

CREATE INDEX ${schema}${prefix}pairs_by_digest ON ${schema}${prefix}pairs (pair);

CREATE TABLE ${schema}${prefix}search (
    id NUMBER(19) GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    thread NUMBER(19) NOT NULL REFERENCES ${schema}${prefix}threads (id) ON DELETE CASCADE,
    seq NUMBER(19),
    branch VARCHAR2(64),
    num NUMBER(10),
    words JSON NOT NULL
);

CREATE INDEX ${schema}${prefix}search_by_checkpoint ON ${schema}${prefix}search (thread, seq);

CREATE INDEX ${schema}${prefix}search_by_run ON ${schema}${prefix}search (thread, branch, num);

-- SYNC (ON COMMIT): a search indexes what is new, and must find it at once.
CREATE SEARCH INDEX ${schema}${prefix}search_by_words ON ${schema}${prefix}search (words) FOR JSON PARAMETERS ('DATAGUIDE OFF SEARCH_ON TEXT SYNC (ON COMMIT)');
