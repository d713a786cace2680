-- MySQL. schema.py fills in ${prefix}, the beginning of every table name, and sends one statement at a time.
-- The table that holds the format version. It exists before any migration runs.

CREATE TABLE IF NOT EXISTS `${prefix}format` (id tinyint NOT NULL PRIMARY KEY, version int NOT NULL);
