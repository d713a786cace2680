-- Format 4: the row of a thread says whether the full text lacks something of it, and an index has the threads of which
-- it does, so that a search does not compare all of them. Versions that know format 3 may read and write: `unindexed`
-- follows from what they write, too. These statements touch every row of the threads, and no other row.

ALTER TABLE ${schema}"${prefix}threads" ADD COLUMN indexed_seq bigint NOT NULL DEFAULT 0;
UPDATE ${schema}"${prefix}threads" t SET indexed_seq = i.up_to FROM ${schema}"${prefix}indexed" i WHERE i.thread = t.id;
ALTER TABLE ${schema}"${prefix}threads"
    ADD COLUMN unindexed boolean NOT NULL GENERATED ALWAYS AS (last_seq > indexed_seq) STORED;
CREATE INDEX "${prefix}threads_unindexed" ON ${schema}"${prefix}threads" (thread_id) WHERE unindexed;
UPDATE ${schema}"${prefix}format" SET min_reader = 3, min_writer = 3;
