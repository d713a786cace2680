BEGIN;
CREATE TABLE "locus_format" (version integer NOT NULL);
INSERT INTO "locus_format" VALUES (0);
CREATE TABLE "locus_threads" (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    thread_id text COLLATE "C" NOT NULL UNIQUE,
    last_seq bigint NOT NULL,
    removals bigint NOT NULL DEFAULT 0,
    expires_at timestamptz
) WITH (fillfactor = 80);
CREATE TABLE "locus_checkpoints" (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    thread bigint NOT NULL,
    seq bigint NOT NULL,
    created_at timestamptz NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    checkpoint_id text COLLATE "C" NOT NULL,
    parent_id text COLLATE "C",
    rev text COLLATE "C" NOT NULL,
    metadata jsonb NOT NULL,
    head json NOT NULL,
    manifest json NOT NULL
);
CREATE UNIQUE INDEX "locus_checkpoints_by_id" ON "locus_checkpoints" (thread, namespace, checkpoint_id);
CREATE UNIQUE INDEX "locus_checkpoints_by_seq" ON "locus_checkpoints" ((namespace || ''), thread, seq);
CREATE INDEX "locus_checkpoints_by_metadata" ON "locus_checkpoints"
    USING gin (metadata jsonb_path_ops) WHERE metadata <> '{}';
CREATE TABLE "locus_runs" (
    thread bigint NOT NULL,
    seq bigint NOT NULL,
    number integer NOT NULL,
    start integer NOT NULL,
    count integer NOT NULL,
    branch text COLLATE "C" NOT NULL,
    items jsonb NOT NULL,
    PRIMARY KEY (thread, branch, number) INCLUDE (start, count, seq)
);
CREATE TABLE "locus_writes" (
    thread bigint NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    checkpoint_id text COLLATE "C" NOT NULL,
    task_id text COLLATE "C" NOT NULL,
    idx integer NOT NULL,
    task_path text COLLATE "C" NOT NULL,
    channel text COLLATE "C" NOT NULL,
    value jsonb NOT NULL
);
CREATE INDEX "locus_writes_by_checkpoint" ON "locus_writes" (thread, namespace, checkpoint_id);
CREATE TABLE "locus_search" (
    thread bigint NOT NULL,
    seq bigint NOT NULL,
    branch text COLLATE "C",
    number integer,
    words tsvector
);
CREATE INDEX "locus_search_by_thread" ON "locus_search" (thread, seq);
CREATE INDEX "locus_search_by_words" ON "locus_search" USING gin (words);
CREATE INDEX "locus_search_too_large" ON "locus_search" (thread) WHERE words IS NULL;
CREATE TABLE "locus_indexed" (thread bigint PRIMARY KEY, up_to bigint NOT NULL);
ALTER TABLE "locus_writes" ALTER COLUMN value DROP NOT NULL;
ALTER TABLE "locus_writes" ADD COLUMN packed bytea;
ALTER TABLE "locus_runs" ADD COLUMN items_before text COLLATE "C";
ALTER TABLE "locus_format" ADD COLUMN min_reader integer;
ALTER TABLE "locus_format" ADD COLUMN min_writer integer;
ALTER TABLE "locus_threads" ADD COLUMN indexed_seq bigint NOT NULL DEFAULT 0;
UPDATE "locus_threads" t SET indexed_seq = i.up_to FROM "locus_indexed" i WHERE i.thread = t.id;
ALTER TABLE "locus_threads"
    ADD COLUMN unindexed boolean NOT NULL GENERATED ALWAYS AS (last_seq > indexed_seq) STORED;
CREATE INDEX "locus_threads_unindexed" ON "locus_threads" (thread_id) WHERE unindexed;
UPDATE "locus_format" SET min_reader = 3, min_writer = 3;
UPDATE "locus_format" SET version = 4;
COMMIT;
INSERT INTO locus_threads (id, thread_id, last_seq, removals, expires_at, indexed_seq) OVERRIDING SYSTEM VALUE SELECT id, thread_id, last_seq, removals, expires_at, indexed_seq FROM json_populate_record(NULL::locus_threads, '{"id":1,"thread_id":"support-42","last_seq":5,"removals":0,"expires_at":null,"indexed_seq":0,"unindexed":true}');
INSERT INTO locus_threads (id, thread_id, last_seq, removals, expires_at, indexed_seq) OVERRIDING SYSTEM VALUE SELECT id, thread_id, last_seq, removals, expires_at, indexed_seq FROM json_populate_record(NULL::locus_threads, '{"id":3,"thread_id":"Tenant/Ä: ''x''","last_seq":4,"removals":2,"expires_at":null,"indexed_seq":0,"unindexed":true}');
INSERT INTO locus_checkpoints (id, thread, seq, created_at, namespace, checkpoint_id, parent_id, rev, metadata, head, manifest) OVERRIDING SYSTEM VALUE SELECT id, thread, seq, created_at, namespace, checkpoint_id, parent_id, rev, metadata, head, manifest FROM json_populate_record(NULL::locus_checkpoints, '{"id":1,"thread":1,"seq":1,"created_at":"2024-05-17T08:00:00.123456+00:00","namespace":"default","checkpoint_id":"one","parent_id":null,"rev":"00000000000000000001","metadata":{"n": 1, "user": "eve", "nested": {"a": [true, null, 1.5]}},"head":{"agent_id":"agent","completion_tokens_used":0,"confidence":0.0,"confidence_threshold":0.85,"iteration":0,"max_iterations":20,"prompt_tokens_used":0,"run_id":"run","started_at":"2024-05-17T08:00:00.123456+00:00","total_tokens_used":0,"updated_at":"2024-05-17T08:00:00.123456+00:00","metadata":{},"messages":[],"tool_executions":[],"tool_history":[],"confidence_history":[],"errors":[]},"manifest":[[["messages"],[["000000000000000000010",0,0,2]]]]}');
INSERT INTO locus_checkpoints (id, thread, seq, created_at, namespace, checkpoint_id, parent_id, rev, metadata, head, manifest) OVERRIDING SYSTEM VALUE SELECT id, thread, seq, created_at, namespace, checkpoint_id, parent_id, rev, metadata, head, manifest FROM json_populate_record(NULL::locus_checkpoints, '{"id":2,"thread":1,"seq":2,"created_at":"2024-05-17T08:00:00.123456+00:00","namespace":"default","checkpoint_id":"two","parent_id":"one","rev":"00000000000000000002","metadata":{},"head":{"agent_id":"agent","completion_tokens_used":20,"confidence":0.5,"confidence_threshold":0.85,"iteration":0,"max_iterations":20,"prompt_tokens_used":10,"run_id":"run","started_at":"2024-05-17T08:00:00.123456+00:00","total_tokens_used":30,"updated_at":"2024-05-17T08:00:00.123456+00:00","metadata":{},"messages":[],"tool_executions":[],"tool_history":["search"],"confidence_history":[0.5],"errors":[]},"manifest":[[["messages"],[["000000000000000000010",1,0,4]]],[["tool_executions"],[["000000000000000000021",0,0,1]]]]}');
INSERT INTO locus_checkpoints (id, thread, seq, created_at, namespace, checkpoint_id, parent_id, rev, metadata, head, manifest) OVERRIDING SYSTEM VALUE SELECT id, thread, seq, created_at, namespace, checkpoint_id, parent_id, rev, metadata, head, manifest FROM json_populate_record(NULL::locus_checkpoints, '{"id":3,"thread":1,"seq":3,"created_at":"2024-05-17T08:00:00.123456+00:00","namespace":"default","checkpoint_id":"three","parent_id":"two","rev":"00000000000000000003","metadata":{},"head":{"agent_id":"agent","completion_tokens_used":20,"confidence":0.5,"confidence_threshold":0.85,"iteration":0,"max_iterations":20,"prompt_tokens_used":10,"run_id":"run","started_at":"2024-05-17T08:00:00.123456+00:00","total_tokens_used":30,"updated_at":"2024-05-17T08:00:00.123456+00:00","metadata":{"big":null},"messages":[],"tool_executions":[],"tool_history":["search"],"confidence_history":[0.5],"errors":[]},"manifest":[[["metadata","big"],"#1f29430157bd2f7ff05ee34a374925d0"],[["messages"],[["000000000000000000010",2,0,4]]],[["tool_executions"],[["000000000000000000021",0,0,1]]]]}');
INSERT INTO locus_checkpoints (id, thread, seq, created_at, namespace, checkpoint_id, parent_id, rev, metadata, head, manifest) OVERRIDING SYSTEM VALUE SELECT id, thread, seq, created_at, namespace, checkpoint_id, parent_id, rev, metadata, head, manifest FROM json_populate_record(NULL::locus_checkpoints, '{"id":4,"thread":1,"seq":4,"created_at":"2024-05-17T08:00:00.123456+00:00","namespace":"default","checkpoint_id":"fork","parent_id":"one","rev":"00000000000000000004","metadata":{},"head":{"agent_id":"agent","completion_tokens_used":0,"confidence":0.0,"confidence_threshold":0.85,"iteration":0,"max_iterations":20,"prompt_tokens_used":0,"run_id":"run","started_at":"2024-05-17T08:00:00.123456+00:00","total_tokens_used":0,"updated_at":"2024-05-17T08:00:00.123456+00:00","metadata":{},"messages":[],"tool_executions":[],"tool_history":[],"confidence_history":[],"errors":[]},"manifest":[[["messages"],[["000000000000000000010",0,0,2],["000000000000000000040",0,0,1]]],[["errors"],[["000000000000000000041",0,0,1]]]]}');
INSERT INTO locus_checkpoints (id, thread, seq, created_at, namespace, checkpoint_id, parent_id, rev, metadata, head, manifest) OVERRIDING SYSTEM VALUE SELECT id, thread, seq, created_at, namespace, checkpoint_id, parent_id, rev, metadata, head, manifest FROM json_populate_record(NULL::locus_checkpoints, '{"id":5,"thread":1,"seq":5,"created_at":"2024-05-17T08:00:00.123456+00:00","namespace":"","checkpoint_id":"trimmed","parent_id":null,"rev":"00000000000000000005","metadata":{},"head":{"agent_id":"agent","completion_tokens_used":20,"confidence":0.5,"confidence_threshold":0.85,"iteration":0,"max_iterations":20,"prompt_tokens_used":10,"run_id":"run","started_at":"2024-05-17T08:00:00.123456+00:00","total_tokens_used":30,"updated_at":"2024-05-17T08:00:00.123456+00:00","metadata":{},"messages":[],"tool_executions":[],"tool_history":["search"],"confidence_history":[0.5],"errors":[]},"manifest":[[["messages"],[["000000000000000000050",0,0,3]]],[["tool_executions"],[["000000000000000000051",0,0,1]]]]}');
INSERT INTO locus_checkpoints (id, thread, seq, created_at, namespace, checkpoint_id, parent_id, rev, metadata, head, manifest) OVERRIDING SYSTEM VALUE SELECT id, thread, seq, created_at, namespace, checkpoint_id, parent_id, rev, metadata, head, manifest FROM json_populate_record(NULL::locus_checkpoints, '{"id":7,"thread":3,"seq":2,"created_at":"2024-05-17T08:00:00.123456+00:00","namespace":"default","checkpoint_id":"replaced","parent_id":null,"rev":"00000000000000000007","metadata":{"old": false},"head":{"agent_id":"agent","completion_tokens_used":0,"confidence":0.0,"confidence_threshold":0.85,"iteration":0,"max_iterations":20,"prompt_tokens_used":0,"run_id":"run","started_at":"2024-05-17T08:00:00.123456+00:00","total_tokens_used":0,"updated_at":"2024-05-17T08:00:00.123456+00:00","metadata":{"list":[]},"messages":[],"tool_executions":[],"tool_history":[],"confidence_history":[],"errors":[]},"manifest":[[["metadata","list"],[["000000000000000000070",0,0,9]]],[["messages"],[["000000000000000000060",0,0,2]]]]}');
INSERT INTO locus_checkpoints (id, thread, seq, created_at, namespace, checkpoint_id, parent_id, rev, metadata, head, manifest) OVERRIDING SYSTEM VALUE SELECT id, thread, seq, created_at, namespace, checkpoint_id, parent_id, rev, metadata, head, manifest FROM json_populate_record(NULL::locus_checkpoints, '{"id":9,"thread":3,"seq":4,"created_at":"2024-05-17T08:00:00.123456+00:00","namespace":"default","checkpoint_id":"last","parent_id":"replaced","rev":"00000000000000000009","metadata":{},"head":{"agent_id":"agent","completion_tokens_used":0,"confidence":0.0,"confidence_threshold":0.85,"iteration":2,"max_iterations":20,"prompt_tokens_used":0,"run_id":"run","started_at":"2024-05-17T08:00:00.123456+00:00","total_tokens_used":0,"updated_at":"2024-05-17T08:00:00.123456+00:00","metadata":{},"messages":[],"tool_executions":[],"tool_history":[],"confidence_history":[],"errors":[]},"manifest":[[["messages"],[["000000000000000000090",0,0,2]]]]}');
INSERT INTO locus_runs (thread, seq, number, start, count, branch, items, items_before) OVERRIDING SYSTEM VALUE SELECT thread, seq, number, start, count, branch, items, items_before FROM json_populate_record(NULL::locus_runs, '{"thread":1,"seq":3,"number":0,"start":0,"count":1,"branch":"#1f29430157bd2f7ff05ee34a374925d0","items":["mmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmm"],"items_before":null}');
INSERT INTO locus_runs (thread, seq, number, start, count, branch, items, items_before) OVERRIDING SYSTEM VALUE SELECT thread, seq, number, start, count, branch, items, items_before FROM json_populate_record(NULL::locus_runs, E'{"thread":1,"seq":1,"number":0,"start":0,"count":2,"branch":"000000000000000000010","items":[{"role": "system", "content": "be brief"}, {"role": "user", "content": {"$locus:str": "\\"café, 😀 or \\\\u0000?\\""}}],"items_before":null}');
INSERT INTO locus_runs (thread, seq, number, start, count, branch, items, items_before) OVERRIDING SYSTEM VALUE SELECT thread, seq, number, start, count, branch, items, items_before FROM json_populate_record(NULL::locus_runs, '{"thread":1,"seq":2,"number":1,"start":2,"count":2,"branch":"000000000000000000010","items":[{"role": "assistant", "tool_calls": [{"id": "call-1", "name": "search", "arguments": {"q": "coffee", "limit": 3}}]}, {"name": "search", "role": "tool", "content": "3 hits", "metadata": {"structured_content": {"rows": [[1, 2.0]]}}, "tool_call_id": "call-1"}],"items_before":"f9zhhVhPOPz08ngi2gdZ2Q"}');
INSERT INTO locus_runs (thread, seq, number, start, count, branch, items, items_before) OVERRIDING SYSTEM VALUE SELECT thread, seq, number, start, count, branch, items, items_before FROM json_populate_record(NULL::locus_runs, '{"thread":1,"seq":3,"number":2,"start":3,"count":1,"branch":"000000000000000000010","items":[{"role": "user", "content": [{"text": "look", "type": "text"}, {"data": "aGk=", "type": "image", "media_type": "image/png"}]}],"items_before":"puWfUU39LUR7mn54QIm9fQ"}');
INSERT INTO locus_runs (thread, seq, number, start, count, branch, items, items_before) OVERRIDING SYSTEM VALUE SELECT thread, seq, number, start, count, branch, items, items_before FROM json_populate_record(NULL::locus_runs, '{"thread":1,"seq":2,"number":0,"start":0,"count":1,"branch":"000000000000000000021","items":[{"result": "3 hits", "timestamp": "2024-05-17T08:00:01.123456+00:00", "tool_name": "search", "tool_call_id": "call-1"}],"items_before":null}');
INSERT INTO locus_runs (thread, seq, number, start, count, branch, items, items_before) OVERRIDING SYSTEM VALUE SELECT thread, seq, number, start, count, branch, items, items_before FROM json_populate_record(NULL::locus_runs, '{"thread":1,"seq":4,"number":0,"start":0,"count":1,"branch":"000000000000000000040","items":[{"role": "user", "content": "another way"}],"items_before":null}');
INSERT INTO locus_runs (thread, seq, number, start, count, branch, items, items_before) OVERRIDING SYSTEM VALUE SELECT thread, seq, number, start, count, branch, items, items_before FROM json_populate_record(NULL::locus_runs, '{"thread":1,"seq":4,"number":0,"start":0,"count":1,"branch":"000000000000000000041","items":["eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee"],"items_before":null}');
INSERT INTO locus_runs (thread, seq, number, start, count, branch, items, items_before) OVERRIDING SYSTEM VALUE SELECT thread, seq, number, start, count, branch, items, items_before FROM json_populate_record(NULL::locus_runs, E'{"thread":1,"seq":5,"number":0,"start":0,"count":3,"branch":"000000000000000000050","items":[{"role": "user", "content": {"$locus:str": "\\"café, 😀 or \\\\u0000?\\""}}, {"role": "assistant", "tool_calls": [{"id": "call-1", "name": "search", "arguments": {"q": "coffee", "limit": 3}}]}, {"name": "search", "role": "tool", "content": "3 hits", "metadata": {"structured_content": {"rows": [[1, 2.0]]}}, "tool_call_id": "call-1"}],"items_before":null}');
INSERT INTO locus_runs (thread, seq, number, start, count, branch, items, items_before) OVERRIDING SYSTEM VALUE SELECT thread, seq, number, start, count, branch, items, items_before FROM json_populate_record(NULL::locus_runs, '{"thread":1,"seq":5,"number":0,"start":0,"count":1,"branch":"000000000000000000051","items":[{"result": "3 hits", "timestamp": "2024-05-17T08:00:01.123456+00:00", "tool_name": "search", "tool_call_id": "call-1"}],"items_before":null}');
INSERT INTO locus_runs (thread, seq, number, start, count, branch, items, items_before) OVERRIDING SYSTEM VALUE SELECT thread, seq, number, start, count, branch, items, items_before FROM json_populate_record(NULL::locus_runs, E'{"thread":3,"seq":1,"number":0,"start":0,"count":2,"branch":"000000000000000000060","items":[{"role": "system", "content": "be brief"}, {"role": "user", "content": {"$locus:str": "\\"café, 😀 or \\\\u0000?\\""}}],"items_before":null}');
INSERT INTO locus_runs (thread, seq, number, start, count, branch, items, items_before) OVERRIDING SYSTEM VALUE SELECT thread, seq, number, start, count, branch, items, items_before FROM json_populate_record(NULL::locus_runs, '{"thread":3,"seq":2,"number":0,"start":0,"count":9,"branch":"000000000000000000070","items":[{"n": 0}, {"n": 1}, {"n": 2}, {"n": 3}, {"n": 4}, {"n": 5}, {"n": 6}, {"n": 7}, {"n": 8}],"items_before":null}');
INSERT INTO locus_runs (thread, seq, number, start, count, branch, items, items_before) OVERRIDING SYSTEM VALUE SELECT thread, seq, number, start, count, branch, items, items_before FROM json_populate_record(NULL::locus_runs, E'{"thread":3,"seq":4,"number":0,"start":0,"count":2,"branch":"000000000000000000090","items":[{"role": "system", "content": "be brief"}, {"role": "user", "content": {"$locus:str": "\\"café, 😀 or \\\\u0000?\\""}}],"items_before":null}');
INSERT INTO locus_writes (thread, namespace, checkpoint_id, task_id, idx, task_path, channel, value, packed) OVERRIDING SYSTEM VALUE SELECT thread, namespace, checkpoint_id, task_id, idx, task_path, channel, value, packed FROM json_populate_record(NULL::locus_writes, '{"thread":1,"namespace":"default","checkpoint_id":"two","task_id":"task","idx":-1,"task_path":"a/b","channel":"__error__","value":"no","packed":null}');
INSERT INTO locus_writes (thread, namespace, checkpoint_id, task_id, idx, task_path, channel, value, packed) OVERRIDING SYSTEM VALUE SELECT thread, namespace, checkpoint_id, task_id, idx, task_path, channel, value, packed FROM json_populate_record(NULL::locus_writes, '{"thread":1,"namespace":"default","checkpoint_id":"two","task_id":"task","idx":0,"task_path":"a/b","channel":"channel","value":{"x": [1]},"packed":null}');
