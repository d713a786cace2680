-- MySQL. schema.py fills in ${prefix}, the beginning of every table name, and sends one statement at a time.
-- Format 3: the digest of what precedes a run, and which versions may use a newer format. No statement touches a row.

ALTER TABLE `${prefix}runs` ADD COLUMN items_before varchar(64) CHARACTER SET ascii COLLATE ascii_bin;

ALTER TABLE `${prefix}format` ADD COLUMN min_reader int;

ALTER TABLE `${prefix}format` ADD COLUMN min_writer int;
