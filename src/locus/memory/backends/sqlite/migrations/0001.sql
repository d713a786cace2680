-- The tables of format 1.
-- SQLite keeps the text of a statement in the database, so even the indentation is part of the stored format.

CREATE TABLE locus_threads (
            id INTEGER PRIMARY KEY, thread_id TEXT NOT NULL UNIQUE, last_seq INTEGER NOT NULL, expires_at TEXT);

CREATE TABLE locus_checkpoints (
            id INTEGER PRIMARY KEY, thread INTEGER NOT NULL, namespace TEXT NOT NULL, checkpoint_id TEXT NOT NULL,
            parent_id TEXT, seq INTEGER NOT NULL, rev TEXT NOT NULL, created_at TEXT NOT NULL,
            metadata TEXT NOT NULL, head TEXT NOT NULL, manifest TEXT NOT NULL);
CREATE UNIQUE INDEX locus_checkpoints_by_id ON locus_checkpoints (thread, namespace, checkpoint_id);
CREATE UNIQUE INDEX locus_checkpoints_by_seq ON locus_checkpoints (thread, namespace, seq);

CREATE TABLE locus_runs (
            id INTEGER PRIMARY KEY, thread INTEGER NOT NULL, branch TEXT NOT NULL, number INTEGER NOT NULL,
            start INTEGER NOT NULL, count INTEGER NOT NULL, seq INTEGER NOT NULL, items TEXT NOT NULL);
CREATE UNIQUE INDEX locus_runs_by_branch ON locus_runs (thread, branch, number);

CREATE TABLE locus_writes (
            thread INTEGER NOT NULL, namespace TEXT NOT NULL, checkpoint_id TEXT NOT NULL, task_id TEXT NOT NULL,
            idx INTEGER NOT NULL, task_path TEXT NOT NULL, channel TEXT NOT NULL, value TEXT NOT NULL,
            PRIMARY KEY (thread, namespace, checkpoint_id, task_id, idx)) WITHOUT ROWID;

CREATE TABLE locus_metadata (
            key TEXT NOT NULL, value TEXT NOT NULL, checkpoint INTEGER NOT NULL,
            PRIMARY KEY (key, value, checkpoint)) WITHOUT ROWID;

CREATE TABLE locus_indexed (what TEXT PRIMARY KEY, up_to INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO locus_indexed VALUES ('runs', 0), ('checkpoints', 0);
