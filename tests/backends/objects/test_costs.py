"""What operations on an object store may cost, in requests and bytes."""

from __future__ import annotations

from benchmarks.object_requests import measured


async def test_requests_and_bytes_stay_within_what_is_promised() -> None:
    costs = await measured(1_000)
    saves, _ = costs.operations["1000 saves"]
    assert saves["put"] <= 2 * 1_000
    assert saves["list"] <= 10
    assert costs.stored <= 4 * costs.content
    for name in ("load the latest, cold", "load one from the middle, cold"):
        counts, rounds = costs.operations[name]
        assert counts["get"] <= 64
        assert counts["list"] == 1
        assert rounds <= 2
    assert costs.operations["load the latest, warm"][1] == 1
    for name, most in (("the last 50 messages, cold", 300), ("the last 50 messages, warm", 100)):
        counts, rounds = costs.operations[name]
        assert counts["get"] <= 24
        assert counts["kilobytes"] <= most
        assert rounds <= 2
    assert costs.operations["50 messages from the middle, cold"][0]["kilobytes"] <= 700
    history, rounds = costs.operations["history, cold"]
    assert history["get"] <= 32
    assert rounds <= 2
    first, _ = costs.operations["the first save of a thread"]
    assert first["put"] == 2
