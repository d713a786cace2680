-- Moves the rows of a store into partitioned tables, in one transaction. If anything fails, nothing has changed: run it
-- again. It needs as much room on the disk as the tables have.
BEGIN;
-- Saves wait from here on, and fail when their command_timeout is over. Reading goes on. This waits for saves that are
-- under way, and new ones wait behind it: so not for long.
DO $$$$
DECLARE
    holders text;
BEGIN
    SET LOCAL lock_timeout = '10s';
    LOCK TABLE ${threads} IN EXCLUSIVE MODE;
    SET LOCAL lock_timeout = 0;
EXCEPTION WHEN lock_not_available THEN
    SELECT string_agg(DISTINCT l.pid::text, ', ') INTO holders FROM pg_locks l
    JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()
    WHERE l.relation = '${threads}'::regclass AND l.granted AND l.mode <> 'AccessShareLock';
    RAISE EXCEPTION 'other transactions have held ${threads} for 10 s (process %); nothing has changed',
        coalesce(holders, 'unknown')
        USING ERRCODE = 'lock_not_available',
        HINT = 'See in pg_stat_activity what they are, wait for them or end them, and run this again.';
END $$$$;
DO $$$$
DECLARE
    found text;
BEGIN
    IF (SELECT max(version) FROM ${format}) <> ${version} THEN
        RAISE EXCEPTION 'the tables do not have format ${version}: migrate them first, with ddl(from_format=…)';
    END IF;
    IF (SELECT relkind FROM pg_class WHERE oid = '${checkpoints}'::regclass) = 'p' THEN
        RAISE EXCEPTION 'the tables are partitioned already';
    END IF;
    -- The tables are made anew. Owners, rights, comments and storage parameters are copied; what else somebody has
    -- added would stay with the old ones, which nobody uses any more.
    SELECT string_agg(DISTINCT what, '; ') INTO found FROM (
        SELECT pg_describe_object(d.classid, d.objid, d.objsubid) AS what FROM pg_depend d
        LEFT JOIN pg_class c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid
        LEFT JOIN pg_constraint k ON d.classid = 'pg_constraint'::regclass AND k.oid = d.objid
        LEFT JOIN pg_trigger g ON d.classid = 'pg_trigger'::regclass AND g.oid = d.objid
        WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid IN (${moved})
            AND d.classid NOT IN ('pg_type'::regclass, 'pg_publication_rel'::regclass)
            AND NOT coalesce(c.relkind IN ('t', 'S') AND d.deptype = 'i', false)
            AND NOT coalesce(c.relkind = 'i' AND c.relname IN (${made_indexes}), false)
            AND NOT coalesce(k.contype IN ('p', 'n'), false)
            AND NOT coalesce(g.tgisinternal, false)
        UNION ALL
        SELECT format('row-level security of table %s', oid::regclass) FROM pg_class
        WHERE oid IN (${moved}) AND (relrowsecurity OR relforcerowsecurity)
        UNION ALL
        SELECT format('publication %I of table %s', p.pubname, c.oid::regclass) FROM pg_publication_tables p
        JOIN pg_namespace n ON n.nspname = p.schemaname
        JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename
        WHERE c.oid IN (${moved})
        UNION ALL
        SELECT format('replica identity of table %s', oid::regclass) FROM pg_class
        WHERE oid IN (${moved}) AND relreplident <> 'd'
        UNION ALL
        SELECT format('tablespace %I of table %s', t.spcname, c.oid::regclass)
        FROM pg_class c JOIN pg_tablespace t ON t.oid = c.reltablespace WHERE c.oid IN (${moved})
    ) AS additions;
    IF found IS NOT NULL THEN
        RAISE EXCEPTION 'these belong to the old tables, and would be lost: %; nothing has changed', found
            USING HINT = 'Note how they were made, drop them, run this, and make them for the new tables.';
    END IF;
END $$$$;
CREATE SCHEMA "${new}";
CREATE SCHEMA "${old}";
${tables}
${rows}
SELECT setval('"${new}"."${prefix}checkpoints_ids"', nextval(pg_get_serial_sequence('${checkpoints}', 'id')));
${indexes}
-- Reading waits from here on, until the end. The order is the one in which a search reads. A save that waits for the
-- threads has opened other tables already, and would wait for this transaction while this one waits for it. So whoever
-- waits for this one loses the connection, and comes again: nothing of what it wanted to write was written. For those
-- who only read for long, as a backup does, it does not wait for ever: saves wait meanwhile.
DO $$$$
DECLARE
    holders text;
    given_up timestamptz := clock_timestamp() + interval '5 min';
BEGIN
    LOOP
        BEGIN
            SET LOCAL lock_timeout = '200ms';
            LOCK TABLE ${locked} IN ACCESS EXCLUSIVE MODE;
            EXIT;
        EXCEPTION WHEN lock_not_available THEN
            PERFORM pg_terminate_backend(pid) FROM pg_stat_activity WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid));
        END;
        IF clock_timestamp() > given_up THEN
            SELECT string_agg(DISTINCT l.pid::text, ', ') INTO holders FROM pg_locks l
            JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()
            WHERE l.relation IN (${moved}) AND l.granted AND l.pid <> pg_backend_pid();
            RAISE EXCEPTION 'others have read the tables for all this time (process %); nothing has changed',
                coalesce(holders, 'unknown')
                USING ERRCODE = 'lock_not_available',
                HINT = 'It may be a backup. See in pg_stat_activity what it is, and run this again when it is over.';
        END IF;
    END LOOP;
    SET LOCAL lock_timeout = 0;
END $$$$;
DO $$$$
DECLARE
    home name;
    place oid;
    one record;
    granted record;
BEGIN
    SELECT n.nspname, n.oid INTO home, place FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = '${threads}'::regclass;
    -- Who owns the tables, and who may use them, stays as it is. A sequence needs a right of its own.
    FOR one IN
        SELECT n.oid::regclass AS made, n.relname, o.oid::regclass AS found, o.relacl, o.reloptions, r.rolname AS owner
        FROM pg_class n JOIN pg_class o ON o.relname = n.relname AND o.relnamespace = place
        JOIN pg_roles r ON r.oid = o.relowner
        WHERE n.relnamespace = '"${new}"'::regnamespace AND n.relkind = 'p'
    LOOP
        FOR granted IN
            SELECT a.privilege_type AS what, coalesce(quote_ident(g.rolname), 'PUBLIC') AS who,
                CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END AS more
            FROM aclexplode(one.relacl) a LEFT JOIN pg_roles g ON g.oid = a.grantee
        LOOP
            EXECUTE format('GRANT %s ON %s TO %s%s', granted.what, one.made, granted.who, granted.more);
            IF granted.what = 'INSERT' AND one.relname = '${prefix}checkpoints' THEN
                EXECUTE format('GRANT USAGE ON SEQUENCE "${new}"."${prefix}checkpoints_ids" TO %s', granted.who);
            END IF;
        END LOOP;
        FOR granted IN
            SELECT a.privilege_type AS what, quote_ident(c.attname) AS which,
                coalesce(quote_ident(g.rolname), 'PUBLIC') AS who,
                CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END AS more
            FROM pg_attribute c CROSS JOIN aclexplode(c.attacl) a LEFT JOIN pg_roles g ON g.oid = a.grantee
            WHERE c.attrelid = one.found AND c.attnum > 0 AND NOT c.attisdropped
        LOOP
            EXECUTE format(
                'GRANT %s (%s) ON %s TO %s%s', granted.what, granted.which, one.made, granted.who, granted.more
            );
            IF granted.what = 'INSERT' AND one.relname = '${prefix}checkpoints' THEN
                EXECUTE format('GRANT USAGE ON SEQUENCE "${new}"."${prefix}checkpoints_ids" TO %s', granted.who);
            END IF;
        END LOOP;
        FOR granted IN
            SELECT CASE WHEN s.objsubid = 0 THEN format('TABLE %s', one.made)
                ELSE format('COLUMN %s.%I', one.made, c.attname) END AS what, s.description AS said
            FROM pg_description s LEFT JOIN pg_attribute c ON c.attrelid = s.objoid AND c.attnum = s.objsubid
            WHERE s.classoid = 'pg_class'::regclass AND s.objoid = one.found
            UNION ALL
            SELECT format('INDEX "${new}".%I', c.relname), s.description
            FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
            JOIN pg_description s ON s.classoid = 'pg_class'::regclass AND s.objoid = c.oid AND s.objsubid = 0
            WHERE i.indrelid = one.found
        LOOP
            EXECUTE format('COMMENT ON %s IS %L', granted.what, granted.said);
        END LOOP;
        FOR granted IN SELECT relid, isleaf FROM pg_partition_tree(one.made) LOOP
            -- A partitioned table itself has no storage.
            IF granted.isleaf AND one.reloptions IS NOT NULL THEN
                EXECUTE format('ALTER TABLE %s SET (%s)', granted.relid, array_to_string(one.reloptions, ', '));
            END IF;
            EXECUTE format('ALTER TABLE %s OWNER TO %I', granted.relid, one.owner);
        END LOOP;
        EXECUTE format('ALTER TABLE %s SET SCHEMA "${old}"', one.found);
    END LOOP;
    FOR one IN
        SELECT oid::regclass AS made FROM pg_class
        WHERE relnamespace = '"${new}"'::regnamespace AND relkind IN ('p', 'r')
    LOOP
        EXECUTE format('ALTER TABLE %s SET SCHEMA %I', one.made, home);
    END LOOP;
END $$$$;
DROP SCHEMA "${new}";
COMMIT;
ANALYZE ${analyzed};
-- The tables as they were are in the schema "${old}". When all is well:
-- DROP SCHEMA "${old}" CASCADE;
