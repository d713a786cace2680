-- The items beside the threads (see `locus.memory.item_table`).

CREATE TABLE ${schema}"${prefix}store_format" (version integer NOT NULL);
INSERT INTO ${schema}"${prefix}store_format" VALUES (1);
CREATE TABLE ${schema}"${prefix}store" (
    namespace text COLLATE "C" NOT NULL, key text COLLATE "C" NOT NULL, value jsonb NOT NULL,
    created_at timestamptz NOT NULL, updated_at timestamptz NOT NULL, ttl_minutes double precision, expires_at timestamptz,
    PRIMARY KEY (namespace, key)
);
CREATE INDEX "${prefix}store_by_end" ON ${schema}"${prefix}store" (expires_at) WHERE expires_at IS NOT NULL;
