-- Format 2: pending writes in a table with row ids, whose values may be packed.
-- A table WITHOUT ROWID has a page of its own for every row of more than a quarter of one.

CREATE TABLE locus_writes_2 (
            thread INTEGER NOT NULL, namespace TEXT NOT NULL, checkpoint_id TEXT NOT NULL, task_id TEXT NOT NULL,
            idx INTEGER NOT NULL, task_path TEXT NOT NULL, channel TEXT NOT NULL, value NOT NULL);

INSERT INTO locus_writes_2 SELECT * FROM locus_writes;
DROP TABLE locus_writes;

-- Otherwise a view of the application that shows the table would prevent the renaming.
PRAGMA legacy_alter_table=ON;
ALTER TABLE locus_writes_2 RENAME TO locus_writes;
PRAGMA legacy_alter_table=OFF;

CREATE UNIQUE INDEX locus_writes_by_task ON locus_writes (thread, namespace, checkpoint_id, task_id, idx);
