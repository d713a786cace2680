"""Conditions of shortcuts without which every answer is the same, by engine and by the reason.

They are there for other purposes: speed, memory, the type checker, or something that is no part of the commit rule.
"""

from __future__ import annotations

SLOWER = "the quick way is left more often, and the other one, which asks the rule, gives the same answer"
ASKS_MORE = "more is looked up than the rule asks for"
READS_ON = "a log is read further than is needed"
LOADS = "it is about where a load finds something"
MARKERS = "it is about markers, which say what threads there are, and no answer depends on them"
FAULTS = "it is about answers that were lost, and here none is"
FORMATS = "it is about what older or newer versions wrote, and here this one wrote everything"
DAMAGE = "it tells of damage, which test_seals does, and here nothing is damaged"
FAILURES = "it is about errors of the server, and here none occurs"
BOUNDS = "it bounds what is remembered, and courses have less"
STANDBYS = "it is about standbys that confirm what is stored, and here there is none"
ONE_REV = "no two checkpoints of a thread have the same rev, and the index finds them by their ids"
WAITS = "what was saved last is looked for, too, but a server may do that before it waits for the thread's lock"
TYPES = "it tells the type checker what the next step finds out as well"
HANDED_OVER = "what a manifest says is handed over, or else read from it"

ALL_CREATE = "every group of a course creates a thread"

_NO_ROW = 'SQL UPDATE "locus_threads" FROM seen | NOT EXISTS (SELECT 1 FROM'
_NO_RUN = f'{_NO_ROW} "locus_runs" r WHERE r.thread = s.id AND r.branch = ? AND r.number >= ? OFFSET 0)'
_NO_RUNS = (
    f'{_NO_ROW} unnest(?[], ?[]) AS n (branch, number), "locus_runs" r'
    " WHERE r.thread = s.id AND r.branch = n.branch AND r.number >= n.number OFFSET 0)"
)
_NO_CHECKPOINT = (
    f'{_NO_ROW} "locus_checkpoints" c WHERE c.thread = s.id AND c.namespace = ? AND c.checkpoint_id = ? OFFSET 0)'
)

_RUN_OF_MEMBER = (
    'EXISTS (SELECT 1 FROM "locus_runs" r'
    " WHERE r.thread = s.id AND r.branch = n.branch AND r.number >= n.number OFFSET 0)"
)
_NO_RUN_OF_MEMBER = (
    "SQL SELECT FROM seen JOIN member | NOT EXISTS (SELECT 1 FROM run n WHERE n.member = s.number AND n.contested"
    f" AND {_RUN_OF_MEMBER} OFFSET 0)"
)
_CREATED = 'SQL INSERT INTO "locus_threads" SELECT FROM member in order'
BASE_AS_SEEN = (
    "SQL UPDATE threads | EXISTS (SELECT 1 FROM checkpoints c"
    " WHERE c.thread = ? AND c.namespace = ? AND c.checkpoint_id = ? AND c.rev = ?)"
)
_NO_RUN_AS_SEEN = (
    "SQL UPDATE threads | NOT EXISTS (SELECT 1 FROM runs r WHERE r.thread = ? AND r.branch = ? AND r.number >= ?)"
)
AS_KNOWN = "expected == (save.key, last_seq, save.removals, save.base_rev)"
_SENT_AS_SEEN = "await self._sent(connection, mysql_commit.in_seen_thread(self.sql, commit, last_seen, reliance))"
_RUN_TAKEN = "last_seen.newest_runs.get(run.branch, -1) >= run.number"
_ALL_RUNS_KNOWN = "self.newest_runs.get(run.branch) == run.number - 1"
_SEEN_FULL = "len(self._threads) >= MOST_SEEN_THREADS and commit.thread_id not in self._threads"
_FEWER_SEEN = (
    "LastSeenThread.continued_by: run.number == 0 and commit.fresh_id -> False",
    f"LastSeenThread.continued_by: {_ALL_RUNS_KNOWN} -> False",
    f"LastSeenThreads.note: {_SEEN_FULL} -> True",
    "LastSeenThreads.note: len(self._threads) >= MOST_SEEN_THREADS -> True",
    "LastSeenThreads.note: before -> False",
    "can_be_first: isinstance(commit.parent_id, str) -> True",
    "can_be_first: commit.parent_required or commit.parent_as_named -> True",
)
"""What MySQL and Oracle have in common: the quick way is left more often."""
_SEEN_BOUND = (
    "LastSeenThreads.note: len(newest_runs) > MOST_BRANCHES -> False",
    f"LastSeenThreads.note: {_SEEN_FULL} -> False",
    "LastSeenThreads.note: commit.thread_id not in self._threads -> True",
)

EQUIVALENT: dict[str, dict[str, tuple[str, ...]]] = {
    "sqlite": {
        SLOWER: (
            "append: seq != last -> True",
            "append: commit.if_latest is not ANY -> True",
            "_follows: commit.if_latest is ANY -> False",
            "_follows: commit.if_latest == base.checkpoint_id -> False",
            "SQL SELECT FROM locus_checkpoints | s.thread = t.id",
            "SQL SELECT FROM locus_checkpoints | s.namespace = ?",
            "SQL SELECT FROM locus_checkpoints | s.checkpoint_id = ?",
        ),
        ASKS_MORE: (
            "append: len(contested) > 2 * MOST_CONTESTED -> False",
            "SQLThread.look: commit.if_latest is not ANY or (commit.parent_id is not None and commit.parent_id not in"
            " view.by_id) -> True",
            "SQLThread.look: commit.parent_id is not None -> True",
            "SQLThread.look: commit.parent_id not in view.by_id -> True",
            "SQL SELECT FROM locus_checkpoints | checkpoint_id IN (?)",
        ),
        "a thread that was created for nothing is rolled back": (
            "SQLThreads.commit: commit.base is not None -> False",
        ),
        "this engine does not ask which thread was written": ("SQLThreads.commit: changed is not None -> False",),
        FORMATS: (
            "_check_newest: newest is not None -> True",
            "SQL SELECT FROM locus_format | t.id <= f.unsealed_threads",
        ),
        DAMAGE: ("_check_newest: newest is not None and newest.of(namespace) not in (None, last) -> False",),
        "a new checkpoint has the highest number of its thread": ("SQL SELECT FROM locus_checkpoints | seq < ?",),
    },
    "file": {
        READS_ON: (
            "LogFile._older: self._complete -> False",
            "LogFile.find: key not in self._ids -> True",
            "LogFile.find: key in self._ids -> False",
            "LogFile.has_run: branch in runs and self._only_grew() -> False",
            "LogFile._only_grew: self._has_only_grown is None -> True",
            "LogFile._only_grew: self._has_only_grown is None -> False",
            "LogFile._only_grew: first.get('seq') == first.get('last_seq') == 1 -> False",
            "LogFile._only_grew: seal.kind == 'checkpoint' -> True",
            "LogFile._only_grew: seal.kind == 'checkpoint' -> False",
        ),
        LOADS: ("LogFile._index_runs: number == 0 -> False",),
        FORMATS: (
            "FileEngine.commit: log is not None -> False",
            "LogFile.has_run: self._only_grew() -> True",
            "LogFile._only_grew: first.get('seq') == first.get('last_seq') == 1 -> True",
        ),
    },
    "objects": {
        READS_ON: (
            "ThreadLog._change: known is None -> False",
            "ThreadLog._change: known -> False",
            "ObjectEngine.commit: commit.fresh_id and (commit.namespace, commit.checkpoint_id) not in index.ids"
            " -> False",
            "ThreadIndex.parent: isinstance(parent, int) and parent < self.first -> True",
            "ThreadIndex.parent: parent < self.first -> True",
            "ThreadLog._change: attempt == 0 -> True",
            "ThreadLog._change: attempt == 0 -> False",
        ),
        MARKERS: (
            "ObjectEngine.commit: index.rows -> True",
            "ObjectEngine.commit: index.rows -> False",
            "ThreadLog._change: proposal.transition is Transition.ENDS -> True",
            "ThreadLog._change: proposal.transition is Transition.ENDS -> False",
            "ThreadLog._change: known.index.born == number - 1 -> True",
            "ThreadLog._change: bool(known.index.rows) -> True",
            "ThreadLog._change: just_begun -> True",
            "ThreadLog._change: proposal.transition is Transition.NONE -> True",
        ),
        FAULTS: (
            "ThreadLog._put_event: not await self._was_put_by(by, number) -> False",
            "ObjectEngine.commit: (commit.namespace, commit.checkpoint_id) not in index.ids -> True",
        ),
        "the rule looks for an id that is not fresh as well, and has all events read for that": (
            "ObjectEngine.commit: commit.fresh_id -> True",
        ),
        "it is about digests, which loads check": ("ThreadIndex._commit: len(run) > 4 -> False",),
        TYPES: (
            "ObjectEngine.commit: named is None -> False",
            "ThreadIndex.parent: isinstance(parent, int) -> True",
        ),
        FORMATS: (
            "ThreadIndex._add_run: run.number > top -> True",
            "ThreadIndex._commit: record.get('sums') -> False",
            "ThreadIndex._commit: [None] * (len(record['runs']) + 1) -> False",
        ),
        "only text is looked for among what is awaited": ("ThreadIndex._add: isinstance(row.parent, str) -> True",),
        "both places have the same text, until a sweep removes one": (
            "ThreadIndex._add_run: run.branch.startswith('#') -> True",
            "ThreadIndex._add_run: run.branch.startswith('#') -> False",
        ),
    },
    "opensearch model": {
        SLOWER: (
            "_attempt: state_is_current -> True",
            "_drafted: view.base -> False",
            "_referenced_names: commit.base is not None -> False",
            "_referenced_names: isinstance(commit.parent_id, str) -> False",
            "_referenced_names: commit.fresh_id -> True",
            "CommitView.__init__: cached is not None and cached.state.changes == state.changes -> False",
            "CommitView.__init__: name in names -> False",
            "CommitView.latest: base.place == place -> False",
            "CommitView.has_run: location.newest -> False",
            "_run_locations: highest[branch] == number -> False",
            "_find_run: stored is None -> True",
            "ThreadCache.get: not cached.fresh -> True",
            "ThreadCache.put: before is not None and before.state.position > state.position -> False",
            "ThreadCache.put: before is not None and before.state.changes == state.changes -> False",
            "ThreadCache.put: base is not None -> False",
        ),
        ASKS_MORE: (
            "_referenced_names: commit.fresh_id -> False",
            "CommitView.__init__: name in names -> True",
            "CommitView.find: name not in self.bases and self._state.live -> True",
            "CommitView.find: name not in self.bases -> True",
            "CommitView.find: self._state.live -> True",
            "CommitView.latest: not self._state.live -> False",
            "CommitView.has_run: location.place != base.place -> False",
            "CommitView._is_opened: self._state.live == self._state.last_seq -> False",
            "CommitView._is_opened: not nothing_was_removed -> True",
            "CommitView._named_runs: self._newest_runs is None -> True",
            "Log.find: not self.state.exists(now_micros()) -> False",
        ),
        MARKERS: (
            "_attempt: draft is not None and draft.repeated -> True",
            "_attempt: draft is not None and draft.repeated -> False",
            "_attempt: draft.repeated -> True",
        ),
        FAULTS: (
            "commit_to_log: resends == _MAX_RESENDS or failure.status != 'N/A' -> False",
            "commit_to_log: resends == _MAX_RESENDS -> False",
            "commit_to_log: failure.status != 'N/A' -> False",
        ),
        "only a process that was killed leaves a removal unfinished": (
            "_attempt: log.pending_removal is not None and (not commit.fresh_id) -> True",
            "_attempt: log.pending_removal is not None and (not commit.fresh_id) -> False",
            "_attempt: log.pending_removal is not None -> True",
            "_attempt: not commit.fresh_id -> True",
            "Log.use_cached_state: cached.state.removing -> False",
        ),
        "it says only whether to wait before the next attempt": (
            "commit_to_log: state_is_current -> True",
            "commit_to_log: state_is_current -> False",
        ),
        "what was planned on an old state is not written, because its place in the log is taken": (
            "_drafted: not state_is_current -> False",
        ),
        "a commit refers to no run that its base does not show; who makes up another one is refused": (
            "_drafted: record is None -> False",
            "_drafted: state_is_current (3) -> True",
            "_drafted: state_is_current (3) -> False",
            "CommitView.has_run: self._base_name is None -> False",
            "CommitView.has_run: location is None -> False",
            "_record: runs is None -> False",
            "_record: locations is None -> False",
            "_stored_runs: last is None -> False",
            "_stored_runs: base is None -> False",
            "_find_run: location is None -> False",
            "_run_locations: location is None -> False",
            "_run_locations: base is None -> False",
        ),
        HANDED_OVER: ("_run_locations: commit.extents -> False",),
        FORMATS: ("CommitView.has_run: self._newest_run(branch) >= number -> False",),
        "the manifest of a commit names no other run of a branch than the last one that it brings": (
            "_run_locations: branch not in highest -> True",
            "_run_locations: highest[branch] == number -> True",
        ),
        "only while another handle removes what is being read": (
            "_find_run: stored is None (2) -> False",
            "_find_run: record is None -> False",
            "Log.latest: record is None -> False",
        ),
        "a name leads to no other checkpoint than its own": ("Log.find: record.name == name -> True",),
        "it tells a record that is lost from one that is being removed, and here none is lost": (
            "commit_to_log: state_is_current and at == unchanged -> False",
            "commit_to_log: state_is_current (2) -> True",
            "commit_to_log: at == unchanged -> True",
            "commit_to_log: state_is_current (3) -> True",
            "commit_to_log: state_is_current (3) -> False",
        ),
        "courses have fewer namespaces than a state lists": (
            "Log.latest: self.state.more -> True",
            "Log.latest: self.state.more -> False",
        ),
        "it says how long what is listed of an expiry may be late": ("_record: expires is None -> True",),
        "courses are shorter than a cached state is trusted": (
            "ThreadCache.get: cached is not None and (not cached.fresh) -> False",
        ),
        "it bounds what a cache holds": (
            "ThreadCache.put: len(self._threads) > MAX_CACHED_THREADS -> False",
            "ThreadCache.put: len(bases) > MAX_CACHED_BASES -> False",
        ),
    },
    "opensearch model together": {
        SLOWER: (
            "commit_group: is_known -> False",
            "commit_group: is_known (2) -> False",
            "commit_group: step is not None -> False",
            "_ids_to_read: asks_for_latest and place is not None and"
            " (place not in [base.place for base in bases.values()]) -> False",
            "_ids_to_read: member.if_latest is not ANY -> False",
            "_ids_to_read: member.parent_id is ANY -> False",
            "_ids_to_read: name in names -> True",
            "_step: isinstance(draft, _Draft) -> False",
            "_written: answer -> False",
            "_written: answer or (draft is not None and is_same(draft.record, found.get(draft.record.id))) -> False",
            "_written: answer is False (2) -> False",
            "_complete_all: all(own) -> False",
            "_complete_all: log.state.must_publish and log.state.published.changes == log.state.changes -> False",
            "ReadClient.get_many: doc_id not in self._documents -> True",
            "Log.ids_to_find: place is None -> True",
        ),
        ASKS_MORE: (
            "commit_group: is_known -> True",
            "_ids_to_read: asks_for_latest -> True",
            "_ids_to_read: cached -> False",
            "_ids_to_read: name in names -> False",
            "_ids_to_read: place not in [base.place for base in bases.values()] -> True",
            "_written: answer is False -> True",
        ),
        MARKERS: (
            "commit_group: step.draft is not None -> False",
            "_complete_all: log.state.must_publish -> True",
            "_complete_all: log.state.must_publish and log.state.published.changes == log.state.changes -> True",
            "_complete_all: log.state.published.changes == log.state.changes -> True",
            "_complete_all: all(own) -> True",
        ),
        FAULTS: (
            "_written: draft is not None and is_same(draft.record, found.get(draft.record.id)) -> False",
            "_written: answer is False -> False",
        ),
        FAILURES: ("_written: answer is False (2) -> True",),
        TYPES: (
            "commit_group: step is not None (2) -> True",
            "_ids_to_read: cached -> True",
        ),
        "it is about pending writes, and courses do not look at these": (
            "_step: log.read_state().expired(now_micros()) -> False",
            "_written: draft is not None (2) -> True",
        ),
    },
    "redis together": {
        SLOWER: ("RedisEngine._call: member.replaces is not None -> True",),
        FAILURES: (
            "outcome_together: isinstance(answer, Exception) or answer in ([b'DAMAGED'], [b'BROKEN']) -> False",
            "outcome_together: isinstance(answer, Exception) -> False",
            "outcome_together: answer in ([b'DAMAGED'], [b'BROKEN']) -> False",
        ),
    },
    "redis": {
        SLOWER: ("RedisEngine.commit: commit.replaces is None -> False",),
        ASKS_MORE: ("Lua if not seen[branch] and string.sub(branch, 1, 1) ~= '#' then: not seen[branch] -> true",),
        HANDED_OVER: ("commit_arguments: commit.extents -> False",),
    },
    "postgresql": {
        SLOWER: (
            "PostgreSQLEngine._commit: await self._only_lacks_its_base(connection, commit) -> False",
            "PostgreSQLEngine._commit: statement is not None -> False",
            "PostgreSQLEngine._only_lacks_its_base: entry.rev != base.rev -> False",
            "_Builder._conditions: key.base -> True",
            "_Builder._conditions: key.if_latest is None -> False",
            "_Builder._conditions: key.if_latest is not ANY -> True",
            "_Builder._conditions: key.parent_looked_up -> True",
            "_statement_key: base is not None -> True",
            "_statement_key: isinstance(commit.if_latest, str) -> True",
            'SQL SELECT FROM "locus_checkpoints" JOIN "locus_threads" | t.id = c.thread',
            'SQL SELECT FROM "locus_checkpoints" JOIN "locus_threads" | (t.expires_at IS NULL OR t.expires_at > ?)',
            f"{_NO_CHECKPOINT} | c.thread = s.id",
            f"{_NO_CHECKPOINT} | c.namespace = ?",
            f"{_NO_CHECKPOINT} | c.checkpoint_id = ?",
            f"{_NO_RUN} | r.thread = s.id",
            f"{_NO_RUN} | r.branch = ?",
            f"{_NO_RUN} | r.number >= ?",
            f"{_NO_RUNS} | r.thread = s.id",
            f"{_NO_RUNS} | r.branch = n.branch",
            f"{_NO_RUNS} | r.number >= n.number",
            "can_be_first: isinstance(commit.parent_id, str) -> True",
            "can_be_first: commit.parent_required or commit.parent_as_named -> True",
            "_statement_key: named (2) -> True",
            "_statement_key: not commit.parent_as_named -> True",
        ),
        "both ask the same, and one is enough": (
            "in_new_thread: commit.base is not None -> False",
            "can_be_first: commit.base is not None -> False",
        ),
        STANDBYS: (
            "PostgreSQLEngine._commit: outcome.repeated -> False",
            "PostgreSQLEngine._commit: outcome.verdict is Verdict.EXISTS -> False",
            "PostgreSQLEngine._commit: outcome.repeated or outcome.verdict is Verdict.EXISTS -> False",
            "PostgreSQLEngine._commit: outcome.repeated or outcome.verdict is Verdict.EXISTS -> True",
            "SQL SELECT FROM \"locus_threads\" | current_setting('synchronous_standby_names', true) <> ''",
            'SQL SELECT FROM "locus_threads" | thread_id = ?',
        ),
        ASKS_MORE: (
            "_Builder._conditions: not key.fresh_id -> True",
            "_Builder._conditions: contested -> True",
            'SQL SELECT FROM "locus_checkpoints" | checkpoint_id IN (?)',
            "_Builder.in_thread: key.if_latest is not ANY or key.parent is ANY -> True",
            "_statement_key: base is None or parent != base.checkpoint_id -> True",
            "_contested: run in contested -> True",
        ),
        "no two checkpoints have the same rev, and the index finds them by their ids": (
            'SQL UPDATE "locus_threads" FROM seen | EXISTS (SELECT 1 FROM "locus_checkpoints" c WHERE c.thread = s.id'
            " AND c.namespace = ? AND c.checkpoint_id = ? AND c.rev = ? OFFSET 0) | c.checkpoint_id = ?",
        ),
        "other statements are built, and they say the same": (
            "_statement_key: isinstance(commit.if_latest, str) -> False",
        ),
    },
    "postgresql in groups": {
        SLOWER: (
            "_member_row: base is None (2) -> True",
            "_member_row: commit.parent_as_named or is_base -> False",
            "_member_row: commit.parent_as_named -> False",
            "_run_rows: run[:2] in contested -> True",
            'SQL SELECT FROM "locus_checkpoints" | same.thread = s.id',
            'SQL SELECT FROM "locus_checkpoints" | same.namespace = m.namespace',
            'SQL SELECT FROM "locus_checkpoints" | same.checkpoint_id = m.free_id',
            f"{_NO_RUN_OF_MEMBER} | n.member = s.number",
            f"{_NO_RUN_OF_MEMBER} | n.contested",
            f"{_NO_RUN_OF_MEMBER} | {_RUN_OF_MEMBER}",
            f"{_NO_RUN_OF_MEMBER} | {_RUN_OF_MEMBER} | r.thread = s.id",
            f"{_NO_RUN_OF_MEMBER} | {_RUN_OF_MEMBER} | r.branch = n.branch",
            f"{_NO_RUN_OF_MEMBER} | {_RUN_OF_MEMBER} | r.number >= n.number",
        ),
        ASKS_MORE: (
            "_member_row: commit.fresh_id -> False",
            "_member_row: is_base -> False",
        ),
        ONE_REV: ('SQL SELECT FROM "locus_checkpoints" | base.checkpoint_id = m.base_id',),
        "nothing is there that a run of a new save could collide with": ("_statement: key.unless_there -> True",),
        "a thread that is there cannot be created; looking for it saves waiting for whoever removes it": (
            f'{_CREATED} | NOT EXISTS (SELECT 1 FROM "locus_threads" t WHERE t.thread_id = m.thread_id OFFSET 0)',
        ),
        ALL_CREATE: (
            "_commit: key.creates -> True",
            "_statement: key.creates -> True",
        ),
        "it is about others who take long to create a thread, and here they are awaited": (
            "_commit: creating -> True",
            f"{_CREATED} | set_config('lock_timeout', ?, true) IS NOT NULL",
        ),
    },
    "mysql in groups": {
        SLOWER: (
            "MySQLEngine._group: relying -> True",
            "MySQLEngine._group: relying -> False",
            "MySQLEngine._group: is_continued -> False",
            "MySQLEngine._send_group: save.outcome is None or not save.outcome.is_written -> True",
            "MySQLEngine._send_group: not save.outcome.is_written -> False",
            "MySQLEngine._send_group: save.created is None -> True",
            f"_outcome: {AS_KNOWN} -> False",
            "_outcome: as_known -> False",
        ),
        ASKS_MORE: (
            "SQL SELECT FROM threads UPDATE SKIP | t.thread_id IN (?)",
            "SQL SELECT FROM threads | t.thread_id IN (?)",
            "SQL SELECT FROM checkpoints JOIN threads | c.checkpoint_id IN (?)",
        ),
        ALL_CREATE: (
            "MySQLEngine._send_group: not statements -> False",
            "Group.questions: firsts -> True",
            "Group.decide: may_create -> True",
        ),
        "courses have no pending writes in their groups": (
            "MySQLEngine._group: isinstance(member, TaskWrites) -> False",
            "Group.decide: task.writes.thread_id in threads -> True",
            "Group.decide: task.writes.thread_id in threads -> False",
        ),
        FAILURES: (
            "MySQLEngine._send_group: not group.creating or error.code not in (LOCKED, DUPLICATE) -> False",
            "MySQLEngine._send_group: not group.creating -> False",
            "MySQLEngine._send_group: error.code not in (LOCKED, DUPLICATE) -> False",
            "Group._that_may_create: self.creating -> True",
        ),
        "here nobody creates a thread at the same time": ("SQL SELECT FROM threads UPDATE NOWAIT | thread_id = ?",),
    },
    "mysql": {
        SLOWER: (
            *_FEWER_SEEN,
            "LastSeenThread.continued_by: commit.fresh_id -> False",
            "MySQLEngine._commit: last_seen is not None -> False",
            f"MySQLEngine._commit: reliance is not None and {_SENT_AS_SEEN} -> False",
            "MySQLEngine._commit: last_seen is None -> True",
            "MySQLEngine._commit: last_seen is None -> False",
            "MySQLEngine._commit: is_new and can_be_first(commit) -> False",
            "MySQLEngine._commit: is_new -> True",
            "MySQLEngine._commit_to_thread: outcome.replaced is None -> False",
            "reliance: last_seen.continued_by(commit) -> False",
            f"reliance: any(({_RUN_TAKEN} for run in runs)) -> False",
            f"reliance: {_RUN_TAKEN} -> True",
            f"reliance: {_RUN_TAKEN} -> False",
            f"{_NO_RUN_AS_SEEN} | r.thread = ?",
            f"{_NO_RUN_AS_SEEN} | r.branch = ?",
            f"{_NO_RUN_AS_SEEN} | r.number >= ?",
        ),
        ONE_REV: (f"{BASE_AS_SEEN} | c.checkpoint_id = ?",),
        WAITS: ("SQL UPDATE threads | id = ?", "SQL UPDATE threads | removals = ?"),
        "an id that is taken cannot be written, and then the rule is asked": (
            "LastSeenThread.continued_by: any_id or commit.fresh_id -> True",
            "reliance: not commit.fresh_id -> False",
        ),
        "this engine never says so": ("LastSeenThread.continued_by: any_id -> False",),
        "an id that is not fresh has left the quick way before": (
            "LastSeenThread.continued_by: commit.fresh_id (2) -> True",
        ),
        ASKS_MORE: ("SQL SELECT FROM checkpoints JOIN threads | c.checkpoint_id IN (?)",),
        "the thread has just been created where this is asked, and holds nothing; on Oracle it holds something": (
            "SQL SELECT FROM checkpoints | namespace = ?",
            "SQL SELECT FROM checkpoints | checkpoint_id IN (?)",
            "SQL SELECT FROM checkpoints in order | namespace = ?",
            "SQL SELECT FROM runs | thread = ?",
            "SQL SELECT FROM runs | branch = ?",
            "SQL SELECT FROM runs | number >= ?",
        ),
        FAILURES: ("MySQLEngine._sent: error.code not in (NOT_NULL, DUPLICATE) -> False",),
        BOUNDS: _SEEN_BOUND,
    },
    "oracle": {
        SLOWER: (
            *_FEWER_SEEN,
            "OracleEngine._commit: last_seen is not None and last_seen.continued_by(commit, any_id=True) -> False",
            "OracleEngine._commit: last_seen is None and can_be_first(commit) -> False",
            "OracleEngine._commit: last_seen is None -> True",
        ),
        "this engine takes any id": (
            "LastSeenThread.continued_by: any_id or commit.fresh_id -> True",
            "LastSeenThread.continued_by: commit.fresh_id -> False",
        ),
        "only fresh ids take the quick way then, and the other one gives the same answer": (
            "LastSeenThread.continued_by: any_id -> False",
        ),
        ASKS_MORE: (
            "SQL SELECT FROM checkpoints | checkpoint_id IN (?)",
            "SQL SELECT FROM runs in order | branch IN (?)",
        ),
        ONE_REV: (
            f"{BASE_AS_SEEN} | c.namespace = ?",
            f"{BASE_AS_SEEN} | c.checkpoint_id = ?",
        ),
        WAITS: ("SQL UPDATE threads | id = ?", "SQL UPDATE threads | removals = ?"),
        FAILURES: (
            "in_seen_thread: not has_code(error, DUPLICATE) -> False",
            "in_new_thread: not has_code(error, DUPLICATE) -> False",
        ),
        BOUNDS: _SEEN_BOUND,
    },
}
