-- MySQL. schema.py fills in ${prefix}, the beginning of every table name, and sends one statement at a time.
-- Format 2: zlib-packed pending writes. A packed row has NULL in `value`.

ALTER TABLE `${prefix}writes` MODIFY value json;

ALTER TABLE `${prefix}writes` ADD COLUMN packed longblob;
