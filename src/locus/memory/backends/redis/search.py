"""Full-text search with the Search module of Redis.

A save does not pay for it: each search first indexes what was saved since the one before. Each run is a document with
its words, and so are the head and metadata of each checkpoint. `memory.model.ids.words` says what a word is, for all
backends alike. The module gets each word as a token that it cannot split, and a query holds nothing but tokens, so no
query can use the module's own language.

    locus:state:doc:{7}:<thread>c<seq>               a hash with the words of head and metadata
    locus:state:doc:{7}:<thread>r<branch> <number>   a hash with the words of a run
    locus:state:format    searched <bucket>          up to which commit the bucket is indexed

Documents expire with their thread. A thread gets more time only by a save, so the next search looks at it again, and
gives its documents the same time.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Sequence
from hashlib import sha256
from itertools import accumulate
from typing import Any

from redis.exceptions import NoPermissionError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from locus.errors import CorruptCheckpointError
from locus.memory.backends.redis import scripts
from locus.memory.backends.redis.client import RedisClients
from locus.memory.backends.redis.portions import with_headers
from locus.memory.backends.redis.remove import ThreadOutline
from locus.memory.backends.redis.schema import Layout, thread_in, to_payload, to_run
from locus.memory.backends.redis.scripts import ScriptCall
from locus.memory.model.ids import words
from locus.memory.model.matching import RANKED, best_hits, score, searchable, shown_text, snippet
from locus.memory.model.records import Entry, Hit, Run

_PORTION = 200
_LONGEST_WORD = 60
_THREADS_AT_ONCE = 100
_KEYS_AT_ONCE = 5_000


class RedisSearch:
    """The search index of one store."""

    def __init__(self, clients: RedisClients, layout: Layout) -> None:
        self._clients = clients
        self._layout = layout
        self._name = f"{layout.prefix}search"

    async def is_available(self) -> bool:
        """Tell whether the server has the module and this user may use it."""
        try:
            await self._clients.command("FT._LIST")
        except NoPermissionError:
            return False
        except ResponseError as error:
            if "unknown command" in str(error).lower():
                return False
            raise
        return True

    async def search(self, terms: Sequence[str], limit: int) -> list[Hit]:
        """Find checkpoints with a document that has all terms, best first."""
        if not limit:
            return []
        await self._create()
        await self._index_more()
        query = _query_of(terms)
        hits: list[Hit] = []
        outlines: dict[str, ThreadOutline | None] = {}
        skip, page = 0, min(limit * 2 + 10, 1_000)
        while True:
            rows = await self._query(query, skip, page)
            hits += await self._hits(rows, terms, outlines)
            # Several documents may belong to one checkpoint, so a full page may not be enough.
            best = best_hits(hits, limit)
            if len(best) >= limit or len(rows) < page:
                return best
            skip += len(rows)

    async def search_within(
        self, terms: Sequence[str], limit: int, prefix: str, newest_first: Sequence[str]
    ) -> list[Hit]:
        """Find checkpoints with a document that has all terms, in threads whose ids start with a prefix, best first.

        `newest_first` are all of these threads, newest first. The module's own scores depend on how many documents of
        all threads have a word. So the documents of the newest threads are ranked by their own texts.
        """
        await self._create()
        await self._index_more()
        query, most = _query_of(terms), max(RANKED, limit * 2 + 10)
        hits: list[Hit] = []
        outlines: dict[str, ThreadOutline | None] = {}
        looked_at = 0
        for first in range(0, len(newest_first), _THREADS_AT_ONCE):
            names = await self._keys_of(newest_first[first : first + _THREADS_AT_ONCE])
            for at in range(0, len(names), _KEYS_AT_ONCE):
                matching = await self._matching(query, names[at : at + _KEYS_AT_ONCE])
                hits += await self._hits([(key, None) for key in matching], terms, outlines)
                looked_at += len(matching)
                if looked_at >= most:
                    return best_hits(hits, limit)
        return best_hits(hits, limit)

    async def _matching(self, query: str, keys: Sequence[bytes]) -> list[bytes]:
        """Choose the documents that match, and those whose keys the module would cut off, at a NUL."""
        matching = [key for key in keys if b"\0" in key]
        others = [key for key in keys if b"\0" not in key]
        if others:
            rows = await self._query(query, 0, len(others), "INKEYS", len(others), *others)
            matching += [key for key, _ in rows]
        return matching

    async def _keys_of(self, thread_ids: Sequence[str]) -> list[bytes]:
        """The keys of the documents of some threads."""
        layout = self._layout
        calls = [ScriptCall(scripts.DOCUMENT_NAMES, layout.thread_keys(thread_id)) for thread_id in thread_ids]
        answers = zip(thread_ids, await self._clients.run_all(calls), strict=True)
        return [layout.document_stem(thread_id) + name for thread_id, names in answers for name in names]

    async def _create(self) -> None:
        if self._name.encode() in await self._clients.command("FT._LIST"):
            return
        schema = ("SCHEMA", "words", "TEXT", "NOSTEM")
        stem = f"{self._layout.prefix}doc:"
        options = ("ON", "HASH", "PREFIX", 1, stem, "STOPWORDS", 0, "NOOFFSETS", "NOHL")
        try:
            await self._clients.command("FT.CREATE", self._name, *options, *schema)
        except ResponseError as error:
            if "already exists" not in str(error).lower():
                raise

    async def _index_more(self) -> None:
        key = self._layout.format_key
        fields = [f"searched {bucket}" for bucket in range(self._layout.buckets)]
        # A damaged mark is none: everything is looked at again.
        marks = [
            int(mark) if mark and mark.isdigit() else 0 for mark in await self._clients.command("HMGET", key, *fields)
        ]
        waiting = dict(enumerate(marks))
        while waiting:
            calls = [
                ScriptCall(scripts.CHANGED_THREADS, self._layout.bucket_keys(bucket), (mark, _PORTION))
                for bucket, mark in waiting.items()
            ]
            answers = dict(zip(list(waiting), await self._clients.run_all(calls), strict=True))
            for bucket, rows in answers.items():
                for name in rows[::2]:
                    await self._index_thread(thread_in(name))
                if rows:
                    waiting[bucket] = int(rows[-1])
                    await self._clients.command("HSET", key, fields[bucket], rows[-1])
                if len(rows) < _PORTION * 2:
                    del waiting[bucket]

    async def _index_thread(self, thread_id: str) -> None:
        keys = self._layout.thread_keys(thread_id)
        while True:
            missing = await self._clients.run(scripts.UNINDEXED, keys, _PORTION)
            docs: list[Any] = []
            for name, text in zip(missing[::2], missing[1::2], strict=True):
                docs += [name, " ".join(map(token, words(_readable(text))))]
            await self._clients.run(scripts.INDEX_DOCUMENTS, keys, *docs)
            if len(missing) < _PORTION * 2:
                return

    async def _query(self, query: str, skip: int, page: int, *options: Any) -> list[tuple[bytes, float]]:
        shape = ("NOCONTENT", "WITHSCORES", *options, "LIMIT", skip, page)
        answer = await self._timed("FT.SEARCH", self._name, query, *shape)
        if isinstance(answer, dict):
            # The caller's own client may speak the newer protocol.
            return [(row[b"id"], float(row[b"score"])) for row in answer[b"results"]]
        return [(answer[at], float(answer[at + 1])) for at in range(1, len(answer), 2)]

    async def _timed(self, *words: Any) -> Any:
        """Send a query to the module, and return its answer.

        It ends a query that takes too long, and may answer with what it has found by then; so an answer that took that
        long counts as none.
        """
        seconds = min(self._clients.timeout * 0.8, 3_600)
        started = time.monotonic()
        answer = await self._clients.command(*words, "TIMEOUT", max(1, int(seconds * 1_000)))
        if time.monotonic() - started >= seconds:
            raise RedisTimeoutError("the search was not finished in time; `timeout` says how long to wait")
        return answer

    async def _hits(
        self,
        rows: Sequence[tuple[bytes, float | None]],
        terms: Sequence[str],
        outlines: dict[str, ThreadOutline | None],
    ) -> list[Hit]:
        """Make the hits for documents. Without `points`, the words of their own texts are counted."""
        documents = [(*self._document(key), points) for key, points in rows]
        unknown = sorted({thread_id for thread_id, _, _ in documents} - outlines.keys())
        keys = self._layout.thread_keys
        answers = await self._clients.run_all([ScriptCall(scripts.OUTLINE, keys(name)) for name in unknown])
        for thread_id, answer in zip(unknown, answers, strict=True):
            # Loading a thread that has lost keys reports that.
            found = await with_headers(self._clients, keys(thread_id), scripts.OUTLINE, slice(4, 6), answer)
            is_there = found[0] not in (b"DAMAGED", b"BROKEN") and found[1]
            outlines[thread_id] = ThreadOutline(thread_id, found) if is_there else None
        calls = [ScriptCall(scripts.DOCUMENT_SOURCE, keys(thread_id), (name,)) for thread_id, name, _ in documents]
        hits: list[Hit] = []
        for (thread_id, name, points), text in zip(documents, await self._clients.run_all(calls), strict=True):
            outline = outlines[thread_id]
            shown, entry = _text_and_entry(outline, name, text, terms) if outline and text else ("", None)
            if entry is None or (points is None and not score(terms, shown)):
                continue
            hits.append(Hit(entry, score(terms, shown) if points is None else points, snippet(terms, shown)))
        return hits

    def _document(self, key: bytes) -> tuple[str, bytes]:
        """Split the key of a document into its thread and the document's name there."""
        _, _, rest = key.removeprefix(f"{self._layout.prefix}doc:".encode()).partition(b"}:")
        size, _, rest = rest.partition(b":")
        return rest[: int(size)].decode(), rest[int(size) :]


def _query_of(terms: Sequence[str]) -> str:
    return f"@words:({' '.join(map(token, terms))})"


def token(word: str) -> str:
    """A word in letters and digits that no tokenizer splits, folds or stems."""
    if len(word) > _LONGEST_WORD:
        return f"d{sha256(word.encode()).hexdigest()[:40]}"
    return f"a{word}" if word.isascii() else f"u{word.encode().hex()}"


def _readable(text: bytes) -> str:
    """The text of a JSON text that search looks into; none if it is damaged, which loading it will report."""
    try:
        return searchable(text.decode())
    except (CorruptCheckpointError, UnicodeDecodeError):
        return ""


def _text_and_entry(outline: ThreadOutline, name: bytes, text: bytes, terms: Sequence[str]) -> tuple[str, Entry | None]:
    """Read the text of a document, and the first checkpoint that shows it."""
    if name[:1] == b"c":
        row = outline.rows.get(int(name[1:]))
        if row is None:
            return "", None
        return searchable(f"[{to_payload(text, row.bound).head},{row.entry.metadata}]"), row.entry
    return first_entry_showing(outline, to_run(name[1:], text), terms)


def first_entry_showing(outline: ThreadOutline, run: Run, terms: Sequence[str]) -> tuple[str, Entry | None]:
    """Find the first checkpoint that shows the terms of a run: the one that wrote it, or the first that is left."""
    newer = sorted((i.number, i.start) for i in outline.runs if i.branch == run.branch and i.number > run.number)
    # A newer run replaces what this one has from its start on. `cuts` are where this run ends, as of each newer one.
    numbers = [number for number, _ in newer]
    cuts = list(accumulate((start for _, start in newer), min))
    texts: dict[tuple[int, int], str] = {}
    for seq, extents in sorted(outline.extents.items()):
        for extent in extents:
            if extent.branch != run.branch or extent.run < run.number:
                continue
            passed = bisect_right(numbers, extent.run)
            end = min(run.start + run.length, extent.skip + extent.length, *cuts[passed - 1 : passed])
            piece = (max(run.start, extent.skip) - run.start, end - run.start)
            if piece[0] < piece[1]:
                if piece not in texts:
                    text = shown_text(run, *piece)
                    texts[piece] = text if score(terms, text) else ""
                if texts[piece]:
                    return texts[piece], outline.rows[seq].entry
    return "", None
