"""A commit from elsewhere is what it says, or is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from locus.core.state import AgentState
from locus.errors import LocusError
from locus.memory.model.ids import digest, new_id
from locus.memory.model.manifest import wanted
from locus.memory.model.payloads import dict_payload
from locus.memory.model.plan import Planner
from locus.memory.model.records import ANY, Base, Commit, Entry, Stored
from locus.memory.model.states import state_payload
from locus.memory.model.trace import Trace
from locus.server.commits import MOST_EXTENTS, commit_from
from locus.testing.data import conversation
from locus.wire.format import commit_text, stored_from, stored_text
from locus.wire.problems import Problem


def _commit(payload: Any = None) -> Commit:
    rev = new_id()
    payload = payload or state_payload(AgentState().with_messages(conversation(5)).with_metadata("text", "x" * 2_000))
    plan = Planner(rev, None).plan(payload)
    return Commit(
        thread_id="t",
        namespace="n",
        checkpoint_id="c",
        rev=rev,
        created_at=datetime.now(UTC),
        metadata='{"k":1}',
        head=plan.head,
        manifest=plan.manifest,
        runs=plan.runs,
        values=plan.values,
    )


def _read(text: str, if_latest: Any = ANY) -> Commit:
    return commit_from("t", "n", json.loads(text), if_latest)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"base": Base("b", "revision")},
        {"parent_id": None, "parent_required": True},
        {"parent_id": "p", "parent_required": True, "parent_as_named": True},
        {"parent_id": "p", "replaces": "revision", "expires_at": datetime.now(UTC)},
        {"checkpoint_id": 'é"\0', "metadata": '{"a":[1.5,-0.0,null,"\\u0000"]}'},
    ],
)
def test_what_a_client_sends_arrives(changes: dict[str, Any]) -> None:
    commit = replace(_commit(), **changes)
    assert _read(commit_text(commit)) == commit


def _appending() -> Commit:
    """A commit with a run that knows what precedes it."""
    state = AgentState().with_messages(conversation(3))
    first = Planner(new_id(), None).plan(state_payload(state))
    longer = state.with_messages(conversation(2))
    plan = Planner(new_id(), Trace(Base("c", "r"), first.fields)).plan(state_payload(longer))
    assert [run.before is not None for run in plan.runs] == [True]
    return replace(_commit(), head=plan.head, manifest=plan.manifest, runs=plan.runs, values=plan.values)


def test_the_digest_of_what_precedes_a_run_arrives() -> None:
    commit = _appending()
    assert _read(commit_text(commit)) == commit


def test_what_a_manifest_names_is_known_without_decoding_it() -> None:
    state = AgentState().with_messages(conversation(3)).with_metadata("note", "n" * 2_000)
    rev = new_id()
    plan = Planner(rev, None).plan(state_payload(state))
    commit = replace(_commit(), rev=rev, head=plan.head, manifest=plan.manifest, runs=plan.runs, values=plan.values)
    arrived = _read(commit_text(commit)).extents
    assert arrived == plan.extents == tuple(wanted(plan.manifest))


def test_an_older_server_or_client_does_without_the_digest() -> None:
    """The protocol has the same number: what one side does not know is beside what it knows."""
    commit = _appending()
    without = replace(commit, runs=tuple(run._replace(before=None) for run in commit.runs))
    assert "before" not in json.loads(commit_text(commit, before=False))
    assert _read(commit_text(commit, before=False)) == without
    entry = Entry("t", "n", "c", None, 1, commit.rev, commit.created_at, commit.metadata)
    stored = Stored(entry, commit.head, commit.manifest, {run.branch: [run] for run in commit.runs})
    answer = json.loads(stored_text(stored))
    assert [len(row) for row in answer["runs"]] == [5]
    assert stored_from(answer) == stored
    del answer["before"]
    assert stored_from(answer).runs == {run.branch: [run] for run in without.runs}


@pytest.mark.parametrize("before", [["x"], ["!" * 22], [1], "text", ["A" * 22] * 2, ["A" * 23]])
def test_digests_that_are_none_are_refused(before: Any) -> None:
    data = json.loads(commit_text(_appending())) | {"before": before}
    with pytest.raises((Problem, LocusError)):
        _read(json.dumps(data))


def test_values_at_the_limits_arrive() -> None:
    deep: Any = 1
    for _ in range(88):
        deep = {"d": deep}
    data = {"deep": deep, "big": 10**4000, "items": [{"x": 1e22}, {"y": -0.0}] * 5, "value": "é\n" * 3_000}
    commit = _commit(dict_payload(data))
    assert _read(commit_text(commit)) == commit


def _changed(**changes: Any) -> str:
    data = json.loads(commit_text(_commit()))
    data |= changes
    return json.dumps({name: value for name, value in data.items() if value != "gone"})


VALUE = json.dumps("y" * 2_000)


@pytest.mark.parametrize(
    "changes",
    [
        {"rev": "gone"},
        {"rev": ""},
        {"rev": "a/b/c/d/e"},
        {"rev": 7},
        {"checkpoint_id": ""},
        {"checkpoint_id": "x" * 256},
        {"created_at": "yesterday"},
        {"created_at": 7},
        {"created_at": "0001-01-01T00:00:00+23:59"},
        {"metadata": []},
        {"metadata": {"a": float("inf")}},
        {"head": []},
        {"head": {"a": float("nan")}},
        {"manifest": {}},
        {"manifest": [["messages", []]]},
        {"manifest": [[["messages"], []]]},
        {"manifest": [[["nowhere"], "#" + "0" * 32]]},
        {"manifest": [[["agent_id", "x"], "#" + "0" * 32]]},
        {"manifest": [[["messages"], "no digest"]]},
        {"manifest": [[["messages"], [["branch-1234", 0, 0]]]]},
        {"manifest": [[["messages"], [["branch-1234", 0, -1, 5]]]]},
        {"manifest": [[["messages"], [["branch-1234", 0, 0, 2**60]]]]},
        {"manifest": [[["messages"], [["branch-1234", 0, 0, 1.5]]]]},
        {"manifest": [[["messages"], [["branch-1234", True, 0, 1]]]]},
        {"manifest": [[["messages"], [["branch-1234", 0, 0, 1]] * (MOST_EXTENTS + 1)]]},
        {"manifest": [[["messages"], [["b-123456", 0, 0, 1]]]] * 2},
        {"manifest": [[["messages"], [["b-123456", 0, 0, 1]]], [["errors"], [["b-123456", 0, 0, 1]]]]},
        {"runs": [["somebody-else", 0, 0, [1]]]},
        {"runs": [["somebody-else", 3, -1, [1]]]},
        {"runs": [["somebody-else", 3, 0, []]]},
        {"runs": [["somebody-else", 3, 0, {}]]},
        {"runs": [["somebody-else", "3", 0, [1]]]},
        {"runs": [["#" + "0" * 32, 3, 0, [1]]]},
        {"runs": 7},
        {"values": [["#" + "0" * 32, VALUE]]},
        {"values": [[f"#{digest('no json')}", "no json"]]},
        {"values": [[f"#{digest('1e999')}", "1e999"]]},
        {"values": [[f"#{digest('7')}", 7]]},
        {"base": ["c"]},
        {"base": ["c", 7]},
        {"base": "c"},
        {"parent_id": 7},
        {"parent_required": "yes"},
        {"parent_as_named": 1},
        {"replaces": 7},
        {"expires_at": "never"},
        {"fresh_id": True},
        {"thread_id": "other"},
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises((Problem, LocusError)) as caught:
        _read(_changed(**changes))
    if isinstance(caught.value, Problem):
        assert caught.value.status == 422


def test_a_lone_surrogate_is_refused_wherever_it_stands() -> None:
    for changes in (
        {"metadata": {"a": "\ud800"}},
        {"head": {"\ud800": 1}},
        {"checkpoint_id": "\ud800"},
        {"replaces": "\ud800"},
        {"parent_id": "\ud800"},
        {"base": ["\ud800", "revision"]},
        {"base": ["c", "\ud800"]},
        {"runs": [["\ud800" * 8, 0, 0, [1]]]},
        {"values": [["#" + "0" * 32, "\ud800"]]},
        {
            "head": {"a": None},
            "manifest": [[["a"], f"#{digest(VALUE)}"], [["a", "\ud800"], f"#{digest(VALUE)}"]],
            "values": [[f"#{digest(VALUE)}", VALUE]],
        },
    ):
        with pytest.raises((Problem, LocusError)):
            _read(_changed(**changes))


def test_the_store_finds_out_for_itself_whether_an_id_is_new() -> None:
    assert _read(commit_text(replace(_commit(), fresh_id=True))).fresh_id is False


def test_the_expectation_stands_in_a_header() -> None:
    commit = replace(_commit(), if_latest="secret")
    assert "secret" not in commit_text(commit)
    assert _read(commit_text(commit), "secret").if_latest == "secret"
