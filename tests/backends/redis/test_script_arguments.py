"""What the scripts are asked to do, worked out before they are called."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from locus.errors import CorruptCheckpointError
from locus.memory.backends.redis.commit import commit_arguments
from locus.memory.backends.redis.remove import ThreadContents, ThreadOutline
from locus.memory.backends.redis.schema import (
    bound_payload,
    entry_text,
    index_field,
    link_text,
    net,
    place,
    relinked,
    run_text,
    write_text,
)
from locus.memory.backends.redis.search import first_entry_showing, token
from locus.memory.model.ids import words
from locus.memory.model.records import ANY, Base, Commit, Entry, Run, Write
from locus.memory.model.retention import Listed

NOW = datetime(2026, 1, 2, tzinfo=UTC)
AT = b"1763211323000001"


def _commit(**changes: object) -> Commit:
    options: dict[str, object] = {"metadata": "{}", "head": "{}", "manifest": "[]", **changes}
    return Commit("t", "ns", "c", "rev", NOW, **options)  # type: ignore[arg-type]


def _entry(seq: int, parent: str | None, metadata: str = "{}") -> Entry:
    return Entry("t", "ns", f"c{seq}", parent, seq, f"rev{seq}", NOW, metadata)


def _stored(entry: Entry, previous: int) -> bytes:
    return relinked(entry.seq, AT + entry_text(entry), previous, entry.parent_id)


def _outline(wants: dict[int, str], runs: dict[bytes, bytes], parents: dict[int, str | None]) -> ThreadOutline:
    entries = [_stored(_entry(seq, parents.get(seq)), seq - 1) for seq in wants]
    seqs, texts = [str(seq).encode() for seq in wants], [text.encode() for text in wants.values()]
    return ThreadOutline("t", [b"born 3 ", seqs, entries, texts, list(runs), list(runs.values())])


def test_the_modes_of_parent_and_expectation() -> None:
    assert commit_arguments(_commit())[7:12] == ["*", "", "", "*", ""]
    assert commit_arguments(_commit(parent_id=None, if_latest=None))[7:12] == ["-", "", "", "-", ""]
    named = _commit(parent_id="p", if_latest="l")
    assert commit_arguments(named)[7:12] == ["=", "p", index_field("ns", "p"), "=", "l"]
    assert commit_arguments(_commit(parent_id="p", parent_required=True))[7] == "!"
    assert commit_arguments(_commit(parent_id="p", parent_required=True, parent_as_named=True))[7] == "~"
    assert named.parent_id is not ANY


def test_base_runs_and_time_to_live() -> None:
    run = Run("b", 2, 4, 1, '["x"]')
    value = Run("#d", 0, 0, 1, '["y"]')
    arguments = commit_arguments(_commit(base=Base("p", "r"), runs=(run,), values=(value,), expires_at=NOW))
    assert arguments[5:7] == [index_field("ns", "p"), "r"]
    assert arguments[13] == str(int(NOW.timestamp() * 1000))
    assert arguments[18:] == [2, "b", 2, b'4 1 1345741074, ["x"]', "#d", 0, run_text(value)]


def test_a_removal_names_everything_that_goes() -> None:
    runs = {b"b 0": b"0 2", b"b 1": b"2 1", b"b 2": b"3 1"}
    outline = _outline({1: "b 0 0 2;", 2: "b 1 0 3;", 3: "b 2 0 4;"}, runs, {2: "c1", 3: "c2"})
    removal = outline.removal_arguments({3})
    assert removal[:4] == [1, 3, index_field("ns", "c3"), place("ns", "c3")]
    assert removal[4:] == [1, "b 2", 1, "b", "1", 0, 1, "ns", "2 c2"]


def test_a_removal_bridges_parents_and_keeps_what_is_shared() -> None:
    outline = _outline({1: "b 0 0 2;", 2: "b 0 0 2;"}, {b"b 0": b"0 2"}, {2: "c1"})
    removal = outline.removal_arguments({1})
    reparented = _stored(_entry(2, None), 0)
    assert removal[4:] == [0, 0, 1, 2, reparented, 1, "ns", "2 c2"]
    everything = outline.removal_arguments({1, 2})
    assert everything[7:] == [1, "b 0", 1, "b", "", 0, 1, "ns", ""]


def test_a_survey_chooses_by_number_rev_and_namespace() -> None:
    outline = _outline({1: "", 2: ""}, {}, {})
    assert outline.select(None, None) == {1, 2}
    assert outline.select("other", None) == set()
    assert outline.select("ns", {1: "rev1", 2: "not this"}) == {1}


def test_a_damaged_survey_is_corrupt() -> None:
    with pytest.raises(CorruptCheckpointError):
        _outline({1: ""}, {b"b 0": b""}, {})
    with pytest.raises(CorruptCheckpointError):
        _outline({1: "nonsense;"}, {}, {})


def test_a_copy_takes_only_what_its_checkpoints_need() -> None:
    entries = [_stored(_entry(1, None, '{"k":1}'), 0), _stored(_entry(2, "c1"), 1)]
    payloads = [bound_payload("rev1", "b 0 0 1;", "{}", "[]"), bound_payload("rev2", "b 1 0 2;", "{}", "[]")]
    runs = [b"b 0", b"0 1 [1]", b"b 1", b"1 1 [2]", b"b", b"1"]
    at = place("ns", "c1")
    text = write_text(at, "task", Write("task", "", 0, "channel", "1"))
    writes = [b"d" + at, net("task"), b"t" + at + b"task", text, b"d" + place("ns", "c2"), b""]
    contents = ThreadContents([b"2", -1, [b"1", b"2"], entries, payloads, runs, writes])
    count, arguments = contents.copy_arguments("dest", "born", Listed("ns", {"c1"}))
    assert (count, arguments[:5]) == (1, ["dest", b"2", "", "born", 1])
    assert arguments[10:12] == [entry_text(_entry(1, None, '{"k":1}')), link_text(0, None)]
    assert arguments[14:] == [1, b"b 0", b"0 1 [1]", 1, at, b"task", text]
    count, arguments = contents.copy_arguments("dest", "born", None)
    assert count == 2
    assert (b"b 1" in arguments, arguments[arguments.index("b") + 1]) == (True, "1")


def test_the_first_checkpoint_that_shows_a_text() -> None:
    runs = {b"b 0": b"0 2", b"b 1": b"1 1"}
    outline = _outline({1: "b 0 0 2;", 2: "b 1 0 2;", 3: "b 1 1 1;"}, runs, {})
    run = Run("b", 0, 0, 2, '["one fish","two fish"]')
    assert first_entry_showing(outline, run, ["one"]) == ("one fish\ntwo fish", outline.entries[1])
    del outline.extents[1]
    assert first_entry_showing(outline, run, ["one"]) == ("one fish", outline.entries[2])
    assert first_entry_showing(outline, run, ["two"]) == ("", None)


def test_words_are_spelt_in_letters_and_digits_and_stay_apart() -> None:
    texts = "and s t the ünd été 日本語 x1y2 ½ " + "long" * 40 + " " + "long" * 41
    tokens = [token(word) for word in words(texts)]
    assert len(set(tokens)) == len(tokens) == 11
    assert all(word.isascii() and word.isalnum() and len(word) < 130 for word in tokens)
