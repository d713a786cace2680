-- Format 3: checksums, the digest of what precedes a run, and which versions may use a newer format.
-- No statement touches a row.

ALTER TABLE locus_checkpoints ADD COLUMN checksum INTEGER;
ALTER TABLE locus_runs ADD COLUMN items_before TEXT;
ALTER TABLE locus_runs ADD COLUMN checksum INTEGER;
ALTER TABLE locus_writes ADD COLUMN checksum INTEGER;
ALTER TABLE locus_format ADD COLUMN min_reader INTEGER;
ALTER TABLE locus_format ADD COLUMN min_writer INTEGER;
