CREATE TABLE locus_checkpoints (
            id INTEGER PRIMARY KEY, thread INTEGER NOT NULL, namespace TEXT NOT NULL, checkpoint_id TEXT NOT NULL,
            parent_id TEXT, seq INTEGER NOT NULL, rev TEXT NOT NULL, created_at TEXT NOT NULL,
            metadata TEXT NOT NULL, head TEXT NOT NULL, manifest TEXT NOT NULL, checksum INTEGER);
INSERT INTO locus_checkpoints VALUES (1, 1, 'default', 'one', NULL, 1, '00000000000000000001', '2024-05-17T08:00:00.123456+00:00', '{"user":"eve","n":1,"nested":{"a":[true,null,1.5]}}', '{"agent_id":"agent","run_id":"run","iteration":0,"max_iterations":20,"confidence":0.0,"confidence_threshold":0.85,"total_tokens_used":0,"prompt_tokens_used":0,"completion_tokens_used":0,"started_at":"2024-05-17T08:00:00.123456+00:00","updated_at":"2024-05-17T08:00:00.123456+00:00","metadata":{},"messages":[],"tool_executions":[],"tool_history":[],"confidence_history":[],"errors":[]}', '[[["messages"],[["000000000000000000010",0,0,2]]]]', 113939692);
INSERT INTO locus_checkpoints VALUES (2, 1, 'default', 'two', 'one', 2, '00000000000000000002', '2024-05-17T08:00:00.123456+00:00', '{}', '{"agent_id":"agent","run_id":"run","iteration":0,"max_iterations":20,"confidence":0.5,"confidence_threshold":0.85,"total_tokens_used":30,"prompt_tokens_used":10,"completion_tokens_used":20,"started_at":"2024-05-17T08:00:00.123456+00:00","updated_at":"2024-05-17T08:00:00.123456+00:00","metadata":{},"messages":[],"tool_executions":[],"tool_history":["search"],"confidence_history":[0.5],"errors":[]}', '[[["messages"],[["000000000000000000010",1,0,4]]],[["tool_executions"],[["000000000000000000021",0,0,1]]]]', 2647665686);
INSERT INTO locus_checkpoints VALUES (3, 1, 'default', 'three', 'two', 3, '00000000000000000003', '2024-05-17T08:00:00.123456+00:00', '{}', '{"agent_id":"agent","run_id":"run","iteration":0,"max_iterations":20,"confidence":0.5,"confidence_threshold":0.85,"total_tokens_used":30,"prompt_tokens_used":10,"completion_tokens_used":20,"started_at":"2024-05-17T08:00:00.123456+00:00","updated_at":"2024-05-17T08:00:00.123456+00:00","metadata":{"big":null},"messages":[],"tool_executions":[],"tool_history":["search"],"confidence_history":[0.5],"errors":[]}', '[[["metadata","big"],"#1f29430157bd2f7ff05ee34a374925d0"],[["messages"],[["000000000000000000010",2,0,4]]],[["tool_executions"],[["000000000000000000021",0,0,1]]]]', 3566117554);
INSERT INTO locus_checkpoints VALUES (4, 1, 'default', 'fork', 'one', 4, '00000000000000000004', '2024-05-17T08:00:00.123456+00:00', '{}', '{"agent_id":"agent","run_id":"run","iteration":0,"max_iterations":20,"confidence":0.0,"confidence_threshold":0.85,"total_tokens_used":0,"prompt_tokens_used":0,"completion_tokens_used":0,"started_at":"2024-05-17T08:00:00.123456+00:00","updated_at":"2024-05-17T08:00:00.123456+00:00","metadata":{},"messages":[],"tool_executions":[],"tool_history":[],"confidence_history":[],"errors":[]}', '[[["messages"],[["000000000000000000010",0,0,2],["000000000000000000040",0,0,1]]],[["errors"],[["000000000000000000041",0,0,1]]]]', 2869792771);
INSERT INTO locus_checkpoints VALUES (5, 1, '', 'trimmed', NULL, 5, '00000000000000000005', '2024-05-17T08:00:00.123456+00:00', '{}', '{"agent_id":"agent","run_id":"run","iteration":0,"max_iterations":20,"confidence":0.5,"confidence_threshold":0.85,"total_tokens_used":30,"prompt_tokens_used":10,"completion_tokens_used":20,"started_at":"2024-05-17T08:00:00.123456+00:00","updated_at":"2024-05-17T08:00:00.123456+00:00","metadata":{},"messages":[],"tool_executions":[],"tool_history":["search"],"confidence_history":[0.5],"errors":[]}', '[[["messages"],[["000000000000000000050",0,0,3]]],[["tool_executions"],[["000000000000000000051",0,0,1]]]]', 148946239);
INSERT INTO locus_checkpoints VALUES (6, 2, 'default', 'replaced', NULL, 2, '00000000000000000007', '2024-05-17T08:00:00.123456+00:00', '{"old":false}', '{"agent_id":"agent","run_id":"run","iteration":0,"max_iterations":20,"confidence":0.0,"confidence_threshold":0.85,"total_tokens_used":0,"prompt_tokens_used":0,"completion_tokens_used":0,"started_at":"2024-05-17T08:00:00.123456+00:00","updated_at":"2024-05-17T08:00:00.123456+00:00","metadata":{"list":[]},"messages":[],"tool_executions":[],"tool_history":[],"confidence_history":[],"errors":[]}', '[[["metadata","list"],[["000000000000000000070",0,0,9]]],[["messages"],[["000000000000000000060",0,0,2]]]]', 1887368471);
INSERT INTO locus_checkpoints VALUES (8, 2, 'default', 'last', 'replaced', 4, '00000000000000000009', '2024-05-17T08:00:00.123456+00:00', '{}', '{"agent_id":"agent","run_id":"run","iteration":2,"max_iterations":20,"confidence":0.0,"confidence_threshold":0.85,"total_tokens_used":0,"prompt_tokens_used":0,"completion_tokens_used":0,"started_at":"2024-05-17T08:00:00.123456+00:00","updated_at":"2024-05-17T08:00:00.123456+00:00","metadata":{},"messages":[],"tool_executions":[],"tool_history":[],"confidence_history":[],"errors":[]}', '[[["messages"],[["000000000000000000090",0,0,2]]]]', 4234866595);
CREATE UNIQUE INDEX locus_checkpoints_by_id ON locus_checkpoints (thread, namespace, checkpoint_id);
CREATE UNIQUE INDEX locus_checkpoints_by_seq ON locus_checkpoints (thread, namespace, seq);
CREATE TABLE locus_format (version INTEGER NOT NULL, min_reader INTEGER, min_writer INTEGER);
INSERT INTO locus_format VALUES (3, NULL, NULL);
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
            start INTEGER NOT NULL, count INTEGER NOT NULL, seq INTEGER NOT NULL, items TEXT NOT NULL, items_before TEXT, checksum INTEGER);
INSERT INTO locus_runs VALUES (1, 1, '000000000000000000010', 0, 0, 2, 1, '[{"role":"system","content":"be brief"}
,{"role":"user","content":"café, 😀 or \u0000?"}]', NULL, 1245201771);
INSERT INTO locus_runs VALUES (10, 2, '000000000000000000060', 0, 0, 2, 1, '[{"role":"system","content":"be brief"}
,{"role":"user","content":"café, 😀 or \u0000?"}]', NULL, 3259271527);
INSERT INTO locus_runs VALUES (11, 2, '000000000000000000070', 0, 0, 9, 2, '[{"n":0}
,{"n":1}
,{"n":2}
,{"n":3}
,{"n":4}
,{"n":5}
,{"n":6}
,{"n":7}
,{"n":8}]', NULL, 3407293004);
INSERT INTO locus_runs VALUES (13, 2, '000000000000000000090', 0, 0, 2, 4, '[{"role":"system","content":"be brief"}
,{"role":"user","content":"café, 😀 or \u0000?"}]', NULL, 2037929105);
INSERT INTO locus_runs VALUES (2, 1, '000000000000000000010', 1, 2, 2, 2, '[{"role":"assistant","tool_calls":[{"id":"call-1","name":"search","arguments":{"q":"coffee","limit":3}}]}
,{"role":"tool","content":"3 hits","tool_call_id":"call-1","name":"search","metadata":{"structured_content":{"rows":[[1,2.0]]}}}]', 'z38fan6NBPL4b3rVFOVruA', 3281730433);
INSERT INTO locus_runs VALUES (3, 1, '000000000000000000021', 0, 0, 1, 2, '[{"tool_name":"search","tool_call_id":"call-1","result":"3 hits","timestamp":"2024-05-17T08:00:01.123456+00:00"}]', NULL, 1271660236);
INSERT INTO locus_runs VALUES (4, 1, '000000000000000000010', 2, 3, 1, 3, '[{"role":"user","content":[{"type":"text","text":"look"},{"type":"image","data":"aGk=","media_type":"image/png"}]}]', '99SOBDHfJe9n2Tbv3GzhDg', 2389178912);
INSERT INTO locus_runs VALUES (5, 1, '#1f29430157bd2f7ff05ee34a374925d0', 0, 0, 1, 3, '["mmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmm"]', NULL, 531169746);
INSERT INTO locus_runs VALUES (6, 1, '000000000000000000040', 0, 0, 1, 4, '[{"role":"user","content":"another way"}]', NULL, 272350625);
INSERT INTO locus_runs VALUES (7, 1, '000000000000000000041', 0, 0, 1, 4, '["eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee"]', NULL, 140620263);
INSERT INTO locus_runs VALUES (8, 1, '000000000000000000050', 0, 0, 3, 5, '[{"role":"user","content":"café, 😀 or \u0000?"}
,{"role":"assistant","tool_calls":[{"id":"call-1","name":"search","arguments":{"q":"coffee","limit":3}}]}
,{"role":"tool","content":"3 hits","tool_call_id":"call-1","name":"search","metadata":{"structured_content":{"rows":[[1,2.0]]}}}]', NULL, 2200043784);
INSERT INTO locus_runs VALUES (9, 1, '000000000000000000051', 0, 0, 1, 5, '[{"tool_name":"search","tool_call_id":"call-1","result":"3 hits","timestamp":"2024-05-17T08:00:01.123456+00:00"}]', NULL, 3502429964);
CREATE UNIQUE INDEX locus_runs_by_branch ON locus_runs (thread, branch, number);
CREATE TABLE locus_threads (
            id INTEGER PRIMARY KEY, thread_id TEXT NOT NULL UNIQUE, last_seq INTEGER NOT NULL, expires_at TEXT);
INSERT INTO locus_threads VALUES (1, 'support-42', 5, NULL);
INSERT INTO locus_threads VALUES (2, 'Tenant/Ä: ''x''', 4, NULL);
CREATE TABLE "locus_writes" (
            thread INTEGER NOT NULL, namespace TEXT NOT NULL, checkpoint_id TEXT NOT NULL, task_id TEXT NOT NULL,
            idx INTEGER NOT NULL, task_path TEXT NOT NULL, channel TEXT NOT NULL, value NOT NULL, checksum INTEGER);
INSERT INTO locus_writes VALUES (1, 'default', 'two', 'task', -1, 'a/b', '__error__', '"no"', 1580427279);
INSERT INTO locus_writes VALUES (1, 'default', 'two', 'task', 0, 'a/b', 'channel', '{"x":[1]}', 1239064391);
CREATE UNIQUE INDEX locus_writes_by_task ON locus_writes (thread, namespace, checkpoint_id, task_id, idx);
