-- The items beside the threads (see `locus.memory.item_table`).

CREATE TABLE ${prefix}store_format (version integer NOT NULL);
INSERT INTO ${prefix}store_format VALUES (1);
CREATE TABLE ${prefix}store (
    namespace TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,
    created_at TEXT NOT NULL, updated_at TEXT NOT NULL, ttl_minutes REAL, expires_at TEXT,
    PRIMARY KEY (namespace, key)
);
CREATE INDEX ${prefix}store_by_end ON ${prefix}store (expires_at) WHERE expires_at IS NOT NULL;
