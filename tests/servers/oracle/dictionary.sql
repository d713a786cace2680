-- What PostgreSQL lacks: Oracle's types, functions and views. Run once, by whoever comes first.
CREATE SCHEMA oracle_sys;
CREATE TABLE oracle_sys.users (name text PRIMARY KEY, password text NOT NULL);

-- Types of their own, so that a result says what it is, and so that a LOB is no text: it can't be compared,
-- sorted or indexed (SQL Language Reference, "Data Types", "CLOB Data Type": ORA-22848, ORA-00932).
CREATE TYPE oracle_sys.clob;
CREATE FUNCTION oracle_sys.clob_in(cstring) RETURNS oracle_sys.clob LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'textin';
CREATE FUNCTION oracle_sys.clob_out(oracle_sys.clob) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'textout';
CREATE TYPE oracle_sys.clob (INPUT = oracle_sys.clob_in, OUTPUT = oracle_sys.clob_out, LIKE = text, STORAGE = extended);
CREATE TYPE oracle_sys.blob;
CREATE FUNCTION oracle_sys.blob_in(cstring) RETURNS oracle_sys.blob LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'byteain';
CREATE FUNCTION oracle_sys.blob_out(oracle_sys.blob) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'byteaout';
CREATE TYPE oracle_sys.blob (INPUT = oracle_sys.blob_in, OUTPUT = oracle_sys.blob_out, LIKE = bytea, STORAGE = extended);
CREATE TYPE oracle_sys.raw;
CREATE FUNCTION oracle_sys.raw_in(cstring) RETURNS oracle_sys.raw LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'byteain';
CREATE FUNCTION oracle_sys.raw_out(oracle_sys.raw) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'byteaout';
CREATE TYPE oracle_sys.raw (INPUT = oracle_sys.raw_in, OUTPUT = oracle_sys.raw_out, LIKE = bytea, STORAGE = extended);
CREATE CAST (oracle_sys.clob AS text) WITHOUT FUNCTION AS ASSIGNMENT;
CREATE CAST (text AS oracle_sys.clob) WITHOUT FUNCTION AS ASSIGNMENT;
CREATE CAST (oracle_sys.blob AS bytea) WITHOUT FUNCTION AS ASSIGNMENT;
CREATE CAST (bytea AS oracle_sys.blob) WITHOUT FUNCTION AS ASSIGNMENT;
CREATE CAST (oracle_sys.raw AS bytea) WITHOUT FUNCTION AS IMPLICIT;
CREATE CAST (bytea AS oracle_sys.raw) WITHOUT FUNCTION AS ASSIGNMENT;
CREATE CAST (oracle_sys.raw AS oracle_sys.blob) WITHOUT FUNCTION AS ASSIGNMENT;
CREATE CAST (oracle_sys.blob AS oracle_sys.raw) WITHOUT FUNCTION AS ASSIGNMENT;
-- A JSON column takes a text that holds JSON: JSON Developer's Guide, "JSON Data Type Constructor".
CREATE CAST (text AS jsonb) WITH INOUT AS ASSIGNMENT;
CREATE CAST (oracle_sys.clob AS jsonb) WITH INOUT AS ASSIGNMENT;

-- VARCHAR2 and RAW columns: SQL Language Reference, "VARCHAR2 Data Type" and "RAW and LONG RAW Data Types".
CREATE FUNCTION oracle_sys.too_large(name text, actual int, maximum int) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS
$$ BEGIN RAISE EXCEPTION 'actual: %, maximum: %', actual, maximum USING ERRCODE = 'OR899', COLUMN = name; END $$;
-- A character that PostgreSQL can't hold is kept as two others, which must not be counted.
CREATE FUNCTION oracle_sys.as_sent(value text) RETURNS text LANGUAGE sql IMMUTABLE AS
$$ SELECT replace(replace(value, U&'\+10FFFE0', '.'), U&'\+10FFFE1', U&'\+10FFFE') $$;
CREATE FUNCTION oracle_sys.fits(value text, size int, name text) RETURNS boolean LANGUAGE sql IMMUTABLE AS
$$ SELECT value IS NULL OR octet_length(value) <= size OR octet_length(oracle_sys.as_sent(value)) <= size
   OR oracle_sys.too_large(name, octet_length(oracle_sys.as_sent(value)), size) $$;
CREATE FUNCTION oracle_sys.fits_characters(value text, size int, name text) RETURNS boolean LANGUAGE sql IMMUTABLE AS
$$ SELECT value IS NULL OR char_length(value) <= size OR char_length(oracle_sys.as_sent(value)) <= size
   OR oracle_sys.too_large(name, char_length(oracle_sys.as_sent(value)), size) $$;
CREATE FUNCTION oracle_sys.fits(value oracle_sys.raw, size int, name text) RETURNS boolean LANGUAGE sql IMMUTABLE AS
$$ SELECT value IS NULL OR octet_length(value::bytea) <= size OR oracle_sys.too_large(name, octet_length(value::bytea), size) $$;

-- The character functions. An empty string is NULL, and NULL is nothing to a concatenation.
CREATE FUNCTION oracle_sys.joined(a text, b text) RETURNS text LANGUAGE sql IMMUTABLE AS
$$ SELECT NULLIF(COALESCE(a, '') || COALESCE(b, ''), '') $$;
CREATE FUNCTION oracle_sys.joined(a text, b numeric) RETURNS text LANGUAGE sql IMMUTABLE AS
$$ SELECT oracle_sys.joined(a, trim_scale(b)::text) $$;
CREATE FUNCTION oracle_sys.joined(a numeric, b text) RETURNS text LANGUAGE sql IMMUTABLE AS
$$ SELECT oracle_sys.joined(trim_scale(a)::text, b) $$;
CREATE FUNCTION oracle_sys.joined(a oracle_sys.clob, b text) RETURNS oracle_sys.clob LANGUAGE sql IMMUTABLE AS
$$ SELECT oracle_sys.joined(a::text, b)::oracle_sys.clob $$;
CREATE FUNCTION oracle_sys.joined(a text, b oracle_sys.clob) RETURNS oracle_sys.clob LANGUAGE sql IMMUTABLE AS
$$ SELECT oracle_sys.joined(a, b::text)::oracle_sys.clob $$;
CREATE FUNCTION oracle_sys.joined(a oracle_sys.clob, b oracle_sys.clob) RETURNS oracle_sys.clob LANGUAGE sql IMMUTABLE AS
$$ SELECT oracle_sys.joined(a::text, b::text)::oracle_sys.clob $$;
CREATE FUNCTION oracle_sys.length(a text) RETURNS numeric LANGUAGE sql IMMUTABLE AS $$ SELECT char_length(a)::numeric $$;
CREATE FUNCTION oracle_sys.length(a oracle_sys.clob) RETURNS numeric LANGUAGE sql IMMUTABLE AS $$ SELECT char_length(a::text)::numeric $$;
CREATE FUNCTION oracle_sys.length(a oracle_sys.blob) RETURNS numeric LANGUAGE sql IMMUTABLE AS $$ SELECT octet_length(a::bytea)::numeric $$;
CREATE FUNCTION oracle_sys.length(a oracle_sys.raw) RETURNS numeric LANGUAGE sql IMMUTABLE AS $$ SELECT octet_length(a::bytea)::numeric $$;
CREATE FUNCTION oracle_sys.substr(a text, first numeric, size numeric DEFAULT 2147483647) RETURNS text LANGUAGE sql IMMUTABLE AS
$$ SELECT NULLIF(CASE
     WHEN size < 1 THEN NULL
     WHEN first < 0 AND -first > char_length(a) THEN NULL
     WHEN first < 0 THEN substr(a, (char_length(a) + first + 1)::int, least(size, 1000000000)::int)
     ELSE substr(a, greatest(first, 1)::int, least(size, 1000000000)::int) END, '') $$;
CREATE FUNCTION oracle_sys.substr(a oracle_sys.clob, first numeric, size numeric DEFAULT 2147483647) RETURNS oracle_sys.clob
LANGUAGE sql IMMUTABLE AS $$ SELECT oracle_sys.substr(a::text, first, size)::oracle_sys.clob $$;
CREATE FUNCTION oracle_sys.lob_substr(a oracle_sys.clob, size numeric, first numeric) RETURNS text LANGUAGE sql IMMUTABLE AS
$$ SELECT oracle_sys.substr(a::text, first, size) $$;
CREATE FUNCTION oracle_sys.lob_substr(a oracle_sys.blob, size numeric, first numeric) RETURNS oracle_sys.raw LANGUAGE sql IMMUTABLE AS
$$ SELECT substr(a::bytea, first::int, size::int)::oracle_sys.raw $$;
CREATE FUNCTION oracle_sys.instr(a text, b text, first numeric DEFAULT 1) RETURNS numeric LANGUAGE sql IMMUTABLE AS
$$ SELECT CASE WHEN position(b in substr(a, first::int)) = 0 THEN 0
     ELSE position(b in substr(a, first::int)) + first - 1 END::numeric $$;
CREATE FUNCTION oracle_sys.instr(a oracle_sys.clob, b text, first numeric DEFAULT 1) RETURNS numeric LANGUAGE sql IMMUTABLE AS
$$ SELECT oracle_sys.instr(a::text, b, first) $$;
CREATE FUNCTION oracle_sys.like_clob(a oracle_sys.clob, b text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$ SELECT a::text LIKE b $$;
CREATE OPERATOR oracle_sys.~~ (LEFTARG = oracle_sys.clob, RIGHTARG = text, FUNCTION = oracle_sys.like_clob);
CREATE FUNCTION oracle_sys.unlike_clob(a oracle_sys.clob, b text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$ SELECT a::text NOT LIKE b $$;
CREATE OPERATOR oracle_sys.!~~ (LEFTARG = oracle_sys.clob, RIGHTARG = text, FUNCTION = oracle_sys.unlike_clob);
CREATE FUNCTION oracle_sys.to_char(a numeric) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT trim_scale(a)::text $$;
CREATE FUNCTION oracle_sys.to_char(a text) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT a $$;
CREATE FUNCTION oracle_sys.to_char(a oracle_sys.clob) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT a::text $$;
CREATE FUNCTION oracle_sys.time_format(f text) RETURNS text LANGUAGE sql IMMUTABLE AS
$$ SELECT regexp_replace(regexp_replace(f, 'FF[0-9]?', 'US', 'g'), 'TZR', 'TZH:TZM', 'g') $$;
CREATE FUNCTION oracle_sys.to_char(a timestamp, f text) RETURNS text LANGUAGE sql STABLE AS
$$ SELECT pg_catalog.to_char(a, oracle_sys.time_format(f)) $$;
CREATE FUNCTION oracle_sys.to_char(a timestamptz, f text) RETURNS text LANGUAGE sql STABLE AS
$$ SELECT pg_catalog.to_char(a, oracle_sys.time_format(f)) $$;
CREATE FUNCTION oracle_sys.to_char(a numeric, f text) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT pg_catalog.to_char(a, f) $$;
CREATE FUNCTION oracle_sys.to_clob(a text) RETURNS oracle_sys.clob LANGUAGE sql IMMUTABLE AS $$ SELECT a::oracle_sys.clob $$;
CREATE FUNCTION oracle_sys.to_clob(a oracle_sys.clob) RETURNS oracle_sys.clob LANGUAGE sql IMMUTABLE AS $$ SELECT a $$;
CREATE FUNCTION oracle_sys.trunc(a numeric, n numeric DEFAULT 0) RETURNS numeric LANGUAGE sql IMMUTABLE AS $$ SELECT trunc(a, n::int) $$;
CREATE FUNCTION oracle_sys.trunc(a timestamp) RETURNS timestamp(0) LANGUAGE sql IMMUTABLE AS $$ SELECT date_trunc('day', a) $$;
CREATE FUNCTION oracle_sys.trunc(a timestamptz) RETURNS timestamp(0) LANGUAGE sql STABLE AS $$ SELECT date_trunc('day', a::timestamp) $$;

-- Days are numbers: SQL Language Reference, "Datetime/Interval Arithmetic".
CREATE FUNCTION oracle_sys.plus_days(a timestamp, b numeric) RETURNS timestamp LANGUAGE sql IMMUTABLE AS
$$ SELECT a + b::float8 * interval '1 day' $$;
CREATE FUNCTION oracle_sys.minus_days(a timestamp, b numeric) RETURNS timestamp LANGUAGE sql IMMUTABLE AS
$$ SELECT a - b::float8 * interval '1 day' $$;
CREATE OPERATOR oracle_sys.+ (LEFTARG = timestamp, RIGHTARG = numeric, FUNCTION = oracle_sys.plus_days);
CREATE OPERATOR oracle_sys.- (LEFTARG = timestamp, RIGHTARG = numeric, FUNCTION = oracle_sys.minus_days);

-- JSON
CREATE FUNCTION oracle_sys.as_json(a jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$ SELECT a $$;
CREATE FUNCTION oracle_sys.as_json(a text) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$ SELECT a::jsonb $$;
CREATE FUNCTION oracle_sys.as_json(a oracle_sys.clob) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$ SELECT a::text::jsonb $$;
CREATE FUNCTION oracle_sys.as_json(a oracle_sys.blob) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$ SELECT convert_from(a::bytea, 'UTF8')::jsonb $$;
-- Oracle puts no spaces between the parts of what it serialises.
CREATE FUNCTION oracle_sys.serialised(a jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT AS
$$ BEGIN
  CASE jsonb_typeof(a)
    WHEN 'object' THEN RETURN '{' || COALESCE((SELECT string_agg(to_jsonb(key)::text || ':' || oracle_sys.serialised(value), ',') FROM jsonb_each(a)), '') || '}';
    WHEN 'array' THEN RETURN '[' || COALESCE((SELECT string_agg(oracle_sys.serialised(value), ',' ORDER BY at) FROM jsonb_array_elements(a) WITH ORDINALITY AS e(value, at)), '') || ']';
    ELSE RETURN a::text;
  END CASE;
END $$;
CREATE FUNCTION oracle_sys.json_mergepatch(a jsonb, b jsonb) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS
$$ DECLARE key text; value jsonb; BEGIN
  IF jsonb_typeof(b) <> 'object' THEN RETURN b; END IF;
  IF a IS NULL OR jsonb_typeof(a) <> 'object' THEN a := '{}'; END IF;
  FOR key, value IN SELECT * FROM jsonb_each(b) LOOP
    IF value = 'null' THEN a := a - key;
    ELSE a := jsonb_set(a, ARRAY[key], oracle_sys.json_mergepatch(a -> key, value)); END IF;
  END LOOP;
  RETURN a;
END $$;
-- The words of a document as Oracle Text's BASIC_LEXER finds them: runs of letters and digits, in any case.
CREATE FUNCTION oracle_sys.words(a text) RETURNS text LANGUAGE sql IMMUTABLE AS
$$ SELECT ' ' || COALESCE((SELECT string_agg(word[1], ' ' ORDER BY at) FROM regexp_matches(lower(a), '[[:alnum:]]+', 'g') WITH ORDINALITY AS w(word, at)), '') || ' ' $$;
CREATE FUNCTION oracle_sys.json_texts(a jsonb, path jsonpath DEFAULT '$') RETURNS text[] LANGUAGE sql IMMUTABLE AS
$$ SELECT array_agg(oracle_sys.words(leaf #>> '{}')) FROM jsonb_path_query(a, path) AS part,
   jsonb_path_query(part, '$.**') AS leaf WHERE jsonb_typeof(leaf) IN ('string', 'number', 'boolean') $$;
CREATE FUNCTION oracle_sys.matches(texts text[], query text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS
$$ DECLARE alternative text; part text; phrase text; all_there boolean; BEGIN
  IF query !~ '^[[:alnum:]%_ &|{}-]*$' OR query !~ '[[:alnum:]]' THEN
    RAISE EXCEPTION 'DRG-50901: text query parser syntax error on line 1, column 1' USING ERRCODE = 'OR902';
  END IF;
  FOREACH alternative IN ARRAY regexp_split_to_array(regexp_replace(query, '\mOR\M', '|', 'gi'), '\|') LOOP
    all_there := true;
    FOREACH part IN ARRAY regexp_split_to_array(regexp_replace(alternative, '\mAND\M', '&', 'gi'), '&') LOOP
      phrase := replace(replace(regexp_replace(lower(trim(part)), '[^[:alnum:]%_]+', ' ', 'g'), '%', '[[:alnum:]]*'), '_', '[[:alnum:]]');
      IF NOT EXISTS (SELECT 1 FROM unnest(texts) AS t(words) WHERE words ~ (' ' || trim(phrase) || ' ')) THEN all_there := false; END IF;
    END LOOP;
    IF all_there THEN RETURN true; END IF;
  END LOOP;
  RETURN false;
END $$;
CREATE FUNCTION oracle_sys.json_textcontains(relation oid, name text, a jsonb, path jsonpath, query text) RETURNS boolean LANGUAGE plpgsql STABLE AS
$$ BEGIN
  IF NOT EXISTS (SELECT 1 FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am m ON m.oid = c.relam
                 WHERE i.indrelid = relation AND m.amname = 'gin' AND pg_get_indexdef(i.indexrelid) LIKE '%json_texts(' || quote_ident(name) || '%') THEN
    RAISE EXCEPTION '%', name USING ERRCODE = 'OR467';
  END IF;
  RETURN oracle_sys.matches(oracle_sys.json_texts(a, path), query);
END $$;

-- What the grammar asks for when it makes a definition.
CREATE FUNCTION oracle_sys.check_index(relation text, columns text) RETURNS void LANGUAGE plpgsql AS
$$ BEGIN
  -- Error Messages, ORA-01408: a list of columns is indexed once.
  IF EXISTS (SELECT 1 FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am m ON m.oid = c.relam
             WHERE i.indrelid = relation::regclass AND m.amname = 'btree' AND i.indexprs IS NULL
             AND (SELECT string_agg('"' || a.attname || '"' || CASE WHEN (i.indoption[k.at - 1] & 1) = 1 THEN ' DESC' ELSE '' END, ', ' ORDER BY k.at)
                  FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k(number, at)
                  JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number) = columns) THEN
    RAISE EXCEPTION 'such column list already indexed' USING ERRCODE = 'OR408';
  END IF;
END $$;
CREATE FUNCTION oracle_sys.check_count(relation text, given int) RETURNS void LANGUAGE plpgsql STABLE AS
$$ BEGIN
  IF (SELECT count(*) FROM pg_attribute WHERE attrelid = relation::regclass AND attnum > 0 AND NOT attisdropped) > given THEN
    RAISE EXCEPTION 'INSERT has more target columns than expressions' USING ERRCODE = '42601';
  END IF;
END $$;
CREATE FUNCTION oracle_sys.check_search_index(relation text, name text, col text) RETURNS void LANGUAGE plpgsql AS
$$ BEGIN
  IF NOT EXISTS (SELECT 1 FROM pg_attribute WHERE attrelid = relation::regclass AND quote_ident(attname) IN (col, trim(col, '"')) AND atttypid = 'jsonb'::regtype) THEN
    RAISE EXCEPTION 'no JSON column' USING ERRCODE = 'OR470';
  END IF;
END $$;
CREATE FUNCTION oracle_sys.own_sequence(sequence text, relation text) RETURNS void LANGUAGE plpgsql AS
$$ DECLARE col text; BEGIN
  SELECT quote_ident(a.attname) INTO col FROM pg_attrdef d JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
    WHERE d.adrelid = relation::regclass AND pg_get_expr(d.adbin, d.adrelid) LIKE '%nextval%' LIMIT 1;
  EXECUTE format('ALTER SEQUENCE %s OWNED BY %s.%s', sequence, relation, col);
END $$;
CREATE FUNCTION oracle_sys.create_user(user_name text, secret text) RETURNS void LANGUAGE plpgsql AS
$$ BEGIN
  INSERT INTO oracle_sys.users VALUES (user_name, secret);
  EXECUTE format('CREATE SCHEMA %I', user_name);
EXCEPTION WHEN unique_violation THEN RAISE EXCEPTION '%', user_name USING ERRCODE = 'OR920';
END $$;
CREATE FUNCTION oracle_sys.alter_user(user_name text, secret text) RETURNS void LANGUAGE plpgsql AS
$$ BEGIN
  UPDATE oracle_sys.users SET password = secret WHERE name = user_name;
  IF NOT FOUND THEN RAISE EXCEPTION '%', user_name USING ERRCODE = 'OR918'; END IF;
END $$;
CREATE FUNCTION oracle_sys.drop_user(user_name text, everything boolean) RETURNS void LANGUAGE plpgsql AS
$$ BEGIN
  IF NOT everything AND EXISTS (SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = user_name) THEN
    RAISE EXCEPTION '%', user_name USING ERRCODE = 'OR922';
  END IF;
  IF EXISTS (SELECT 1 FROM pg_stat_activity WHERE split_part(application_name, ' ', 1) = 'oracle:' || user_name AND datname = current_database()) THEN
    RAISE EXCEPTION '%', user_name USING ERRCODE = 'OR940';
  END IF;
  DELETE FROM oracle_sys.users WHERE name = user_name;
  IF NOT FOUND THEN RAISE EXCEPTION '%', user_name USING ERRCODE = 'OR918'; END IF;
  EXECUTE format('DROP SCHEMA %I CASCADE', user_name);
END $$;
CREATE FUNCTION oracle_sys.check_grant(relation text, user_name text) RETURNS void LANGUAGE plpgsql AS
$$ BEGIN
  IF relation <> '' THEN PERFORM relation::regclass; END IF;
  IF user_name <> 'PUBLIC' AND NOT EXISTS (SELECT 1 FROM oracle_sys.users WHERE name = user_name) THEN
    RAISE EXCEPTION '%', user_name USING ERRCODE = 'OR917';
  END IF;
END $$;
CREATE FUNCTION oracle_sys.kill_session(session text) RETURNS void LANGUAGE plpgsql AS
-- A connection serves one session after another, so that its number alone may have become another's.
$$ BEGIN
  PERFORM pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE application_name LIKE 'oracle:%' AND pid || ',' || split_part(application_name, ' ', 2) = session;
  IF NOT FOUND THEN RAISE EXCEPTION '%', session USING ERRCODE = 'OR030'; END IF;
END $$;
CREATE FUNCTION oracle_sys.username() RETURNS text LANGUAGE sql STABLE AS $$ SELECT substr(split_part(current_setting('application_name'), ' ', 1), 8) $$;
CREATE FUNCTION oracle_sys.sys_context(space text, what text) RETURNS text LANGUAGE sql STABLE AS
$$ SELECT CASE upper(what) WHEN 'CURRENT_SCHEMA' THEN current_schema()::text WHEN 'SESSION_USER' THEN oracle_sys.username()
     WHEN 'CURRENT_USER' THEN oracle_sys.username() WHEN 'SID' THEN pg_backend_pid()::text END $$;

-- The data dictionary: Database Reference, "Static Data Dictionary Views".
CREATE VIEW oracle_sys."DUAL" AS SELECT 'X'::text AS "DUMMY";
CREATE VIEW oracle_sys."ALL_TABLES" AS SELECT n.nspname::text AS "OWNER", c.relname::text AS "TABLE_NAME", c.reltuples::numeric AS "NUM_ROWS"
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN oracle_sys.users u ON u.name = n.nspname WHERE c.relkind = 'r';
CREATE VIEW oracle_sys."USER_TABLES" AS SELECT "TABLE_NAME", "NUM_ROWS" FROM oracle_sys."ALL_TABLES" WHERE "OWNER" = oracle_sys.username();
CREATE VIEW oracle_sys."ALL_INDEXES" AS SELECT n.nspname::text AS "OWNER", c.relname::text AS "INDEX_NAME", n.nspname::text AS "TABLE_OWNER",
    t.relname::text AS "TABLE_NAME", CASE WHEN m.amname = 'gin' THEN 'DOMAIN' WHEN i.indexprs IS NOT NULL THEN 'FUNCTION-BASED NORMAL' ELSE 'NORMAL' END AS "INDEX_TYPE",
    CASE WHEN i.indisunique THEN 'UNIQUE' ELSE 'NONUNIQUE' END AS "UNIQUENESS", 'VALID'::text AS "STATUS"
  FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_class t ON t.oid = i.indrelid JOIN pg_am m ON m.oid = c.relam
  JOIN pg_namespace n ON n.oid = c.relnamespace JOIN oracle_sys.users u ON u.name = n.nspname;
CREATE VIEW oracle_sys."USER_INDEXES" AS SELECT "INDEX_NAME", "TABLE_OWNER", "TABLE_NAME", "INDEX_TYPE", "UNIQUENESS", "STATUS"
  FROM oracle_sys."ALL_INDEXES" WHERE "OWNER" = oracle_sys.username();
CREATE VIEW oracle_sys."ALL_TAB_COLUMNS" AS SELECT n.nspname::text AS "OWNER", c.relname::text AS "TABLE_NAME", a.attname::text AS "COLUMN_NAME",
    CASE format_type(a.atttypid, NULL) WHEN 'text' THEN 'VARCHAR2' WHEN 'jsonb' THEN 'JSON' WHEN 'oracle_sys.clob' THEN 'CLOB' WHEN 'clob' THEN 'CLOB'
      WHEN 'oracle_sys.blob' THEN 'BLOB' WHEN 'blob' THEN 'BLOB' WHEN 'oracle_sys.raw' THEN 'RAW' WHEN 'raw' THEN 'RAW'
      WHEN 'timestamp without time zone' THEN CASE a.atttypmod WHEN 0 THEN 'DATE' ELSE 'TIMESTAMP(6)' END
      WHEN 'timestamp with time zone' THEN 'TIMESTAMP(6) WITH TIME ZONE' WHEN 'double precision' THEN 'BINARY_DOUBLE'
      WHEN 'boolean' THEN 'BOOLEAN' WHEN 'character' THEN 'CHAR' ELSE 'NUMBER' END AS "DATA_TYPE",
    CASE WHEN a.attnotnull THEN 'N' ELSE 'Y' END AS "NULLABLE", a.attnum::numeric AS "COLUMN_ID"
  FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace JOIN oracle_sys.users u ON u.name = n.nspname
  WHERE c.relkind IN ('r', 'v') AND a.attnum > 0 AND NOT a.attisdropped;
CREATE VIEW oracle_sys."USER_TAB_COLUMNS" AS SELECT "TABLE_NAME", "COLUMN_NAME", "DATA_TYPE", "NULLABLE", "COLUMN_ID"
  FROM oracle_sys."ALL_TAB_COLUMNS" WHERE "OWNER" = oracle_sys.username();
CREATE VIEW oracle_sys."ALL_USERS" AS SELECT name AS "USERNAME" FROM oracle_sys.users;
CREATE VIEW oracle_sys."USER_CONSTRAINTS" AS SELECT k.conname::text AS "CONSTRAINT_NAME", c.relname::text AS "TABLE_NAME",
    CASE k.contype WHEN 'p' THEN 'P' WHEN 'u' THEN 'U' WHEN 'f' THEN 'R' ELSE 'C' END AS "CONSTRAINT_TYPE"
  FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE n.nspname = oracle_sys.username() AND k.conname NOT LIKE '~%';
CREATE VIEW oracle_sys."NLS_DATABASE_PARAMETERS" AS SELECT * FROM (VALUES ('NLS_CHARACTERSET', 'AL32UTF8'), ('NLS_NCHAR_CHARACTERSET', 'AL16UTF16'),
  ('NLS_LENGTH_SEMANTICS', 'BYTE'), ('NLS_COMP', 'BINARY'), ('NLS_SORT', 'BINARY')) AS p("PARAMETER", "VALUE");
CREATE VIEW oracle_sys."V$VERSION" AS SELECT 'Oracle stand-in, an emulator of Release 23.26.1'::text AS "BANNER", '23.26.1.0.0'::text AS "BANNER_FULL";
CREATE VIEW oracle_sys."V$SESSION" AS SELECT pid::numeric AS "SID", split_part(application_name, ' ', 2)::numeric AS "SERIAL#", substr(split_part(application_name, ' ', 1), 8) AS "USERNAME",
  CASE state WHEN 'active' THEN 'ACTIVE' ELSE 'INACTIVE' END AS "STATUS" FROM pg_stat_activity WHERE application_name LIKE 'oracle:%' AND datname = current_database();
