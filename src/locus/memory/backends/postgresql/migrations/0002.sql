-- Format 2: the value of a pending write may be packed. Neither statement touches a row.

ALTER TABLE ${schema}"${prefix}writes" ALTER COLUMN value DROP NOT NULL;
ALTER TABLE ${schema}"${prefix}writes" ADD COLUMN packed bytea;
