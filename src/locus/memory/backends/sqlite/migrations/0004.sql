-- Format 4: seals, the number of the checkpoint before, and the newest checkpoints in the row of each thread.
-- No statement touches a row. Rows up to the numbers in `unsealed_…` are from older versions, and may have no seal.
-- Only this format and newer ones may write; format 3 may read.

ALTER TABLE locus_threads ADD COLUMN digest INTEGER;
ALTER TABLE locus_threads ADD COLUMN newest TEXT;
ALTER TABLE locus_threads ADD COLUMN seal INTEGER;
CREATE INDEX locus_threads_by_digest ON locus_threads (digest);
ALTER TABLE locus_checkpoints ADD COLUMN previous INTEGER;
ALTER TABLE locus_checkpoints ADD COLUMN seal INTEGER;
ALTER TABLE locus_runs ADD COLUMN seal INTEGER;
ALTER TABLE locus_writes ADD COLUMN seal INTEGER;
ALTER TABLE locus_format ADD COLUMN unsealed_threads INTEGER;
ALTER TABLE locus_format ADD COLUMN unsealed_checkpoints INTEGER;
ALTER TABLE locus_format ADD COLUMN unsealed_runs INTEGER;
ALTER TABLE locus_format ADD COLUMN unsealed_writes INTEGER;
UPDATE locus_format SET min_reader = 3, min_writer = 4,
            unsealed_threads = (SELECT coalesce(max(id), 0) FROM locus_threads),
            unsealed_checkpoints = (SELECT coalesce(max(id), 0) FROM locus_checkpoints),
            unsealed_runs = (SELECT coalesce(max(id), 0) FROM locus_runs),
            unsealed_writes = (SELECT coalesce(max(rowid), 0) FROM locus_writes);
