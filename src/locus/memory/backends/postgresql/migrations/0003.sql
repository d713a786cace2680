-- Format 3: the digest of what precedes a run, and which versions may use a newer format. No statement touches a row.

ALTER TABLE ${schema}"${prefix}runs" ADD COLUMN items_before text COLLATE "C";
ALTER TABLE ${schema}"${prefix}format" ADD COLUMN min_reader integer;
ALTER TABLE ${schema}"${prefix}format" ADD COLUMN min_writer integer;
