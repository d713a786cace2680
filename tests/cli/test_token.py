"""`locus token`: its line is one that `locus serve` takes."""

from __future__ import annotations

import json

import pytest

from locus.cli import main
from locus.server.auth import parse_tokens


@pytest.mark.parametrize(
    "options", [[], ["--read"], ["--prefix", "acme/"], ["--read", "--prefix", "a:", "--saves", "7", "--megabytes", "2"]]
)
def test_the_line_is_one_of_a_token_file(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["token", *options]) == 0
    (parsed,) = parse_tokens(capsys.readouterr().out)
    assert parsed.grant.writes == ("--read" not in options)
    assert parsed.grant.prefix == (options[options.index("--prefix") + 1] if "--prefix" in options else "")


def test_two_are_never_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert main(["token", "--json"]) == 0
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert first["token"] != second["token"]
    assert first["line"].split()[0] == first["token"]


@pytest.mark.parametrize("prefix", ["acme", "a/;0123456789abcdef write a/", "a/;0123456789abcdef/", "a b/", "a\n/"])
def test_a_prefix_that_would_match_other_tenants(prefix: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["token", "--prefix", prefix]) == 2
    assert "ends with / or :" in capsys.readouterr().err
