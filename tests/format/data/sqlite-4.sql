CREATE TABLE locus_checkpoints (
            id INTEGER PRIMARY KEY, thread INTEGER NOT NULL, namespace TEXT NOT NULL, checkpoint_id TEXT NOT NULL,
            parent_id TEXT, seq INTEGER NOT NULL, rev TEXT NOT NULL, created_at TEXT NOT NULL,
            metadata TEXT NOT NULL, head TEXT NOT NULL, manifest TEXT NOT NULL, checksum INTEGER, previous INTEGER, seal INTEGER);
INSERT INTO locus_checkpoints VALUES (1, 1, 'default', 'one', NULL, 1, '00000000000000000001', '2024-05-17T08:00:00.123456+00:00', '{"user":"eve","n":1,"nested":{"a":[true,null,1.5]}}', '{"agent_id":"agent","run_id":"run","iteration":0,"max_iterations":20,"confidence":0.0,"confidence_threshold":0.85,"total_tokens_used":0,"prompt_tokens_used":0,"completion_tokens_used":0,"started_at":"2024-05-17T08:00:00.123456+00:00","updated_at":"2024-05-17T08:00:00.123456+00:00","metadata":{},"messages":[],"tool_executions":[],"tool_history":[],"confidence_history":[],"errors":[]}', '[[["messages"],[["000000000000000000010",0,0,2]]]]', 113939692, 0, 1100016173);
INSERT INTO locus_checkpoints VALUES (2, 1, 'default', 'two', 'one', 2, '00000000000000000002', '2024-05-17T08:00:00.123456+00:00', '{}', '{"agent_id":"agent","run_id":"run","iteration":0,"max_iterations":20,"confidence":0.5,"confidence_threshold":0.85,"total_tokens_used":30,"prompt_tokens_used":10,"completion_tokens_used":20,"started_at":"2024-05-17T08:00:00.123456+00:00","updated_at":"2024-05-17T08:00:00.123456+00:00","metadata":{},"messages":[],"tool_executions":[],"tool_history":["search"],"confidence_history":[0.5],"errors":[]}', '[[["messages"],[["000000000000000000010",1,0,4]]],[["tool_executions"],[["000000000000000000021",0,0,1]]]]', 2647665686, 1, 815453232);
INSERT INTO locus_checkpoints VALUES (3, 1, 'default', 'three', 'two', 3, '00000000000000000003', '2024-05-17T08:00:00.123456+00:00', '{}', '{"agent_id":"agent","run_id":"run","iteration":0,"max_iterations":20,"confidence":0.5,"confidence_threshold":0.85,"total_tokens_used":30,"prompt_tokens_used":10,"completion_tokens_used":20,"started_at":"2024-05-17T08:00:00.123456+00:00","updated_at":"2024-05-17T08:00:00.123456+00:00","metadata":{"big":null},"messages":[],"tool_executions":[],"tool_history":["search"],"confidence_history":[0.5],"errors":[]}', '[[["metadata","big"],"#1f29430157bd2f7ff05ee34a374925d0"],[["messages"],[["000000000000000000010",2,0,4]]],[["tool_executions"],[["000000000000000000021",0,0,1]]]]', 3566117554, 2, 3900082813);
INSERT INTO locus_checkpoints VALUES (4, 1, 'default', 'fork', 'one', 4, '00000000000000000004', '2024-05-17T08:00:00.123456+00:00', '{}', '{"agent_id":"agent","run_id":"run","iteration":0,"max_iterations":20,"confidence":0.0,"confidence_threshold":0.85,"total_tokens_used":0,"prompt_tokens_used":0,"completion_tokens_used":0,"started_at":"2024-05-17T08:00:00.123456+00:00","updated_at":"2024-05-17T08:00:00.123456+00:00","metadata":{},"messages":[],"tool_executions":[],"tool_history":[],"confidence_history":[],"errors":[]}', '[[["messages"],[["000000000000000000010",0,0,2],["000000000000000000040",0,0,1]]],[["errors"],[["000000000000000000041",0,0,1]]]]', 2869792771, 3, 2696011169);
INSERT INTO locus_checkpoints VALUES (5, 1, '', 'trimmed', NULL, 5, '00000000000000000005', '2024-05-17T08:00:00.123456+00:00', '{}', '{"agent_id":"agent","run_id":"run","iteration":0,"max_iterations":20,"confidence":0.5,"confidence_threshold":0.85,"total_tokens_used":30,"prompt_tokens_used":10,"completion_tokens_used":20,"started_at":"2024-05-17T08:00:00.123456+00:00","updated_at":"2024-05-17T08:00:00.123456+00:00","metadata":{},"messages":[],"tool_executions":[],"tool_history":["search"],"confidence_history":[0.5],"errors":[]}', '[[["messages"],[["000000000000000000050",0,0,3]]],[["tool_executions"],[["000000000000000000051",0,0,1]]]]', 148946239, 0, 2882877354);
INSERT INTO locus_checkpoints VALUES (6, 2, 'default', 'replaced', NULL, 2, '00000000000000000007', '2024-05-17T08:00:00.123456+00:00', '{"old":false}', '{"agent_id":"agent","run_id":"run","iteration":0,"max_iterations":20,"confidence":0.0,"confidence_threshold":0.85,"total_tokens_used":0,"prompt_tokens_used":0,"completion_tokens_used":0,"started_at":"2024-05-17T08:00:00.123456+00:00","updated_at":"2024-05-17T08:00:00.123456+00:00","metadata":{"list":[]},"messages":[],"tool_executions":[],"tool_history":[],"confidence_history":[],"errors":[]}', '[[["metadata","list"],[["000000000000000000070",0,0,9]]],[["messages"],[["000000000000000000060",0,0,2]]]]', 1887368471, 0, 2445301619);
INSERT INTO locus_checkpoints VALUES (8, 2, 'default', 'last', 'replaced', 4, '00000000000000000009', '2024-05-17T08:00:00.123456+00:00', '{}', '{"agent_id":"agent","run_id":"run","iteration":2,"max_iterations":20,"confidence":0.0,"confidence_threshold":0.85,"total_tokens_used":0,"prompt_tokens_used":0,"completion_tokens_used":0,"started_at":"2024-05-17T08:00:00.123456+00:00","updated_at":"2024-05-17T08:00:00.123456+00:00","metadata":{},"messages":[],"tool_executions":[],"tool_history":[],"confidence_history":[],"errors":[]}', '[[["messages"],[["000000000000000000090",0,0,2]]]]', 4234866595, 2, 3469573547);
CREATE UNIQUE INDEX locus_checkpoints_by_id ON locus_checkpoints (thread, namespace, checkpoint_id);
CREATE UNIQUE INDEX locus_checkpoints_by_seq ON locus_checkpoints (thread, namespace, seq);
CREATE TABLE locus_format (version INTEGER NOT NULL, min_reader INTEGER, min_writer INTEGER, unsealed_threads INTEGER, unsealed_checkpoints INTEGER, unsealed_runs INTEGER, unsealed_writes INTEGER);
INSERT INTO locus_format VALUES (4, 3, 4, 0, 0, 0, 0);
CREATE TABLE locus_indexed (what TEXT PRIMARY KEY, up_to INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO locus_indexed VALUES ('checkpoints', 0);
INSERT INTO locus_indexed VALUES ('runs', 0);
CREATE TABLE locus_metadata (
            key TEXT NOT NULL, value TEXT NOT NULL, checkpoint INTEGER NOT NULL,
            PRIMARY KEY (key, value, checkpoint)) WITHOUT ROWID;
INSERT INTO locus_metadata VALUES ('n', '1', 1);
INSERT INTO locus_metadata VALUES ('nested', '{"a":[true,null,1.5]}', 1);
INSERT INTO locus_metadata VALUES ('old', 'false', 6);
INSERT INTO locus_metadata VALUES ('user', '"eve"', 1);
CREATE TABLE locus_runs (
            id INTEGER PRIMARY KEY, thread INTEGER NOT NULL, branch TEXT NOT NULL, number INTEGER NOT NULL,
            start INTEGER NOT NULL, count INTEGER NOT NULL, seq INTEGER NOT NULL, items TEXT NOT NULL, items_before TEXT, checksum INTEGER, seal INTEGER);
INSERT INTO locus_runs VALUES (1, 1, '000000000000000000010', 0, 0, 2, 1, '[{"role":"system","content":"be brief"}
,{"role":"user","content":"café, 😀 or \u0000?"}]', NULL, NULL, 3899637532);
INSERT INTO locus_runs VALUES (10, 2, '000000000000000000060', 0, 0, 2, 1, '[{"role":"system","content":"be brief"}
,{"role":"user","content":"café, 😀 or \u0000?"}]', NULL, NULL, 4273175753);
INSERT INTO locus_runs VALUES (11, 2, '000000000000000000070', 0, 0, 9, 2, '[{"n":0}
,{"n":1}
,{"n":2}
,{"n":3}
,{"n":4}
,{"n":5}
,{"n":6}
,{"n":7}
,{"n":8}]', NULL, NULL, 126229934);
INSERT INTO locus_runs VALUES (13, 2, '000000000000000000090', 0, 0, 2, 4, '[{"role":"system","content":"be brief"}
,{"role":"user","content":"café, 😀 or \u0000?"}]', NULL, NULL, 3051833331);
INSERT INTO locus_runs VALUES (2, 1, '000000000000000000010', 1, 2, 2, 2, '[{"role":"assistant","tool_calls":[{"id":"call-1","name":"search","arguments":{"q":"coffee","limit":3}}]}
,{"role":"tool","content":"3 hits","tool_call_id":"call-1","name":"search","metadata":{"structured_content":{"rows":[[1,2.0]]}}}]', 'z38fan6NBPL4b3rVFOVruA', NULL, 1641198898);
INSERT INTO locus_runs VALUES (3, 1, '000000000000000000021', 0, 0, 1, 2, '[{"tool_name":"search","tool_call_id":"call-1","result":"3 hits","timestamp":"2024-05-17T08:00:01.123456+00:00"}]', NULL, NULL, 3926095997);
INSERT INTO locus_runs VALUES (4, 1, '000000000000000000010', 2, 3, 1, 3, '[{"role":"user","content":[{"type":"text","text":"look"},{"type":"image","data":"aGk=","media_type":"image/png"}]}]', '99SOBDHfJe9n2Tbv3GzhDg', NULL, 748647377);
INSERT INTO locus_runs VALUES (5, 1, '#1f29430157bd2f7ff05ee34a374925d0', 0, 0, 1, 3, '["mmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmm"]', NULL, NULL, 3185605507);
INSERT INTO locus_runs VALUES (6, 1, '000000000000000000040', 0, 0, 1, 4, '[{"role":"user","content":"another way"}]', NULL, NULL, 2926786386);
INSERT INTO locus_runs VALUES (7, 1, '000000000000000000041', 0, 0, 1, 4, '["eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee"]', NULL, NULL, 2795056024);
INSERT INTO locus_runs VALUES (8, 1, '000000000000000000050', 0, 0, 3, 5, '[{"role":"user","content":"café, 😀 or \u0000?"}
,{"role":"assistant","tool_calls":[{"id":"call-1","name":"search","arguments":{"q":"coffee","limit":3}}]}
,{"role":"tool","content":"3 hits","tool_call_id":"call-1","name":"search","metadata":{"structured_content":{"rows":[[1,2.0]]}}}]', NULL, NULL, 559512249);
INSERT INTO locus_runs VALUES (9, 1, '000000000000000000051', 0, 0, 1, 5, '[{"tool_name":"search","tool_call_id":"call-1","result":"3 hits","timestamp":"2024-05-17T08:00:01.123456+00:00"}]', NULL, NULL, 1861898429);
CREATE UNIQUE INDEX locus_runs_by_branch ON locus_runs (thread, branch, number);
CREATE TABLE locus_threads (
            id INTEGER PRIMARY KEY, thread_id TEXT NOT NULL UNIQUE, last_seq INTEGER NOT NULL, expires_at TEXT, digest INTEGER, newest TEXT, seal INTEGER);
INSERT INTO locus_threads VALUES (1, 'support-42', 5, NULL, -6990786100711796835, 'bd7a0a4b552d7165:4,cae66941d9efbd40:5,0', 3417729533);
INSERT INTO locus_threads VALUES (2, 'Tenant/Ä: ''x''', 4, NULL, 4678303972799476347, 'bd7a0a4b552d7165:4,0', 957741118);
CREATE INDEX locus_threads_by_digest ON locus_threads (digest);
CREATE TABLE "locus_writes" (
            thread INTEGER NOT NULL, namespace TEXT NOT NULL, checkpoint_id TEXT NOT NULL, task_id TEXT NOT NULL,
            idx INTEGER NOT NULL, task_path TEXT NOT NULL, channel TEXT NOT NULL, value NOT NULL, checksum INTEGER, seal INTEGER);
INSERT INTO locus_writes VALUES (1, 'default', 'two', 'task', -1, 'a/b', '__error__', '"no"', NULL, 4221324783);
INSERT INTO locus_writes VALUES (1, 'default', 'two', 'task', 0, 'a/b', 'channel', '{"x":[1]}', NULL, 67761282);
CREATE UNIQUE INDEX locus_writes_by_task ON locus_writes (thread, namespace, checkpoint_id, task_id, idx);
