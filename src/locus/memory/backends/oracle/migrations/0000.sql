-- Oracle Database. schema.py fills in ${schema}, which is empty or ends with a dot, and ${prefix}, the beginning of
-- every table name, and sends one statement at a time. A constraint belongs to the schema of its table, so its name
-- has no ${schema}.
-- The table that holds the format version, with its one row. It exists before any migration runs.

CREATE TABLE ${schema}${prefix}format (id NUMBER(1) NOT NULL PRIMARY KEY, version NUMBER(9) NOT NULL);

INSERT INTO ${schema}${prefix}format (id, version) VALUES (1, 0);
