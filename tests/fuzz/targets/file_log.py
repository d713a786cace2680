"""The log of a thread, as the file backend reads it.

A case is the text of a log. Checksums and places would be wrong after any change, and hide everything behind them. So
they are put right first, unless the first byte is odd: whoever can write to the folder can do that, too.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from itertools import islice
from typing import Final
from zlib import crc32

from locus.errors import CorruptCheckpointError, LocusError
from locus.memory.backends.file.client import LogFolder
from locus.memory.backends.file.log import LogFile
from locus.memory.backends.file.salvage import salvage
from locus.memory.backends.file.schema import CHECKSUM_KEY, SEAL_START, checkpoint_record, records_of, writes_record
from locus.memory.model.codec import encode
from locus.memory.model.manifest import wanted
from locus.memory.model.payloads import dict_from
from locus.memory.model.records import Commit, Entry, Outcome, Run, Stored, TaskWrites, Verdict, Write
from locus.memory.model.table import Row, ThreadTable
from tests.fuzz.places import scratch

_PREV: Final = re.compile(rb'"prev":(\d{1,18}|null)')
_BYTES: Final = re.compile(rb'"bytes":\d{1,18}')
_CRC: Final = re.compile(rb'"crc":\d{1,10}')


def mended(text: bytes) -> bytes:
    """A log whose seals fit what is there: checksums, lengths and places."""
    done, record, prev = b"", b"", None
    for line in text.splitlines(keepends=True):
        if not line.startswith(SEAL_START):
            record += line
            continue
        body, _, _ = line.partition(CHECKSUM_KEY)
        body = _BYTES.sub(b'"bytes":%d' % len(record), body, count=1)
        body = _PREV.sub(b'"prev":%s' % (b"null" if prev is None else b"%d" % prev), body, count=1)
        body = _CRC.sub(b'"crc":%d' % crc32(record), body, count=1)
        prev = len(done) + len(record)
        done += record + body + CHECKSUM_KEY + b"%d}\n" % crc32(body)
        record = b""
    return done + record


def run(data: bytes) -> int:
    text = data[1:] if data[:1] and data[0] % 2 else mended(data[1:])
    path = scratch() / "t.jsonl"
    path.write_bytes(text)
    made, failed = 0, None
    for read in (_entries, _loads, _table, _measured, _salvaged):
        log = LogFile(path, "t")
        try:
            if log.refresh():
                made += read(log)
        except LocusError as error:
            failed = failed or error
        finally:
            log.release()
    LogFile.is_log(path)
    if failed is not None:
        raise failed
    return made


def _entries(log: LogFile) -> int:
    log.expired(datetime.now(UTC))
    found = [seal.entry("t") for seal in islice(log.checkpoints(), 1_000)]
    log.find("default", None)
    log.find("default", "c1")
    log.has_run("b", 1)
    log.check_writable()
    return len(repr(found)) + len(log.orphans())


def _loads(log: LogFile) -> int:
    made = 0
    for seal in islice(log.checkpoints(), 50):
        stored = log.stored(seal, wanted(encode(seal.facts["manifest"])))
        made += len(repr(dict_from(stored)))
    return made


def _table(log: LogFile) -> int:
    table = log.table()
    for record in records_of(table):
        record.sealed(None, pretty=False)
    return len(repr(table.rows))


def _measured(log: LogFile) -> int:
    found = log.measured()
    return 0 if found is None else len(found.runs)


def _content(stored: Stored) -> object | None:
    try:
        return dict_from(stored)
    except CorruptCheckpointError:
        return None


def _salvaged(log: LogFile) -> int:
    log.release()
    found = salvage(LogFolder(scratch(), False), "t", _content, apply=False)
    return 0 if found is None else len(repr(found))


def _log() -> bytes:
    """A short log with all that one can have."""
    at, table = datetime(2026, 1, 1, tzinfo=UTC), ThreadTable("t")
    table.add(
        Commit(
            "t",
            "default",
            "c1",
            "r1",
            at,
            '{"k":1}',
            '{"messages":[]}',
            '[[["messages"],[["b",0,0,2]]]]',
            (Run("b", 0, 0, 2, '[{"role":"user"},2]'),),
        ),
        Outcome(Verdict.COMMITTED, 1),
    )
    records = list(records_of(table))
    entry = Entry("t", "default", "c2", "c1", 2, "r2", at, "{}")
    manifest = '[[["large"],"v"],[["messages"],[["b",1,0,2]]]]'
    runs = [Run("b", 1, 1, 1, "[3]"), Run("v", 0, 0, 1, '["x"]')]
    records.append(checkpoint_record(Row(entry, '{"messages":[],"large":null}', manifest), runs, 2, None))
    records.append(writes_record(TaskWrites("t", "default", "c2", "task", (Write("task", "", 0, "x", "1"),)), 2, None))
    text, prev = b"", None
    for record in records:
        sealed = record.sealed(prev, pretty=True)
        prev = len(text) + sealed.rfind(SEAL_START)
        text += sealed
    return text


_LOG: Final = _log()
SEEDS: Final = [
    b"\0" + _LOG,
    b"\1" + _LOG,
    b"\1" + _LOG[:-20],
    *(
        b"\0" + _LOG.replace(b'"metadata":{}', b'"metadata":{"a":%s}' % (b"[" * deep + b"]" * deep))
        for deep in (95, 300, 980)
    ),
    b'\0{"seal":"thread"}\n',
    b"\0" + _LOG + b'{"head":{}\n',
]
