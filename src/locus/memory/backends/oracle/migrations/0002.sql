-- Oracle Database. schema.py fills in ${schema}, which is empty or ends with a dot, and ${prefix}, the beginning of
-- every table name, and sends one statement at a time. A constraint belongs to the schema of its table, so its name
-- has no ${schema}.
-- Format 2: the digest of what precedes a run. The statement touches no row.

ALTER TABLE ${schema}${prefix}runs ADD (items_before VARCHAR2(64));
