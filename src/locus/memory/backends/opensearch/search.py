"""Full-text search over all threads: a search of the index after a refresh, whose hits are checked word by word."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from locus.memory.backends.opensearch.client import Client, Json, StoredDocument, filtered
from locus.memory.backends.opensearch.log import IN_BATCH, Log, ThreadCache
from locus.memory.backends.opensearch.read import NEWEST_FIRST, HitFilter, in_threads
from locus.memory.backends.opensearch.schema import CHECKPOINT, RUNS, Record, RunKey, indexed_word, record_from
from locus.memory.engine import warn_of_damage
from locus.memory.model.manifest import walk, wanted
from locus.memory.model.matching import RANKED, best_hits, score, searchable, shown_text, snippet
from locus.memory.model.records import Hit, Run


def search(client: Client, cache: ThreadCache, terms: Sequence[str], limit: int) -> list[Hit]:
    """Find checkpoints with a run or a head that has all terms, best first."""
    if not limit:
        return []
    client.refresh()
    kinds = [{"terms": {"kind": [CHECKPOINT, RUNS]}}]
    body = {
        "query": {"bool": {"filter": kinds, "must": _wanted_words(terms)}},
        "sort": [{"_score": "desc"}, {"thread": "asc"}, {"seq": "asc"}, {"position": "asc"}, IN_BATCH],
    }
    hit_filter, matching = HitFilter(client, cache), list[Hit]()
    for hits in client.pages(body, size=min(200, limit + 10)):
        matching += _hits_of(client, cache, hit_filter, terms, hits)
        if len(best_hits(matching, limit)) >= limit:
            break
    warn_of_damage(hit_filter.damaged.values())
    return best_hits(matching, limit)


def search_within(client: Client, cache: ThreadCache, terms: Sequence[str], limit: int, prefix: str) -> list[Hit]:
    """Find checkpoints with a run or a head that has all terms, in threads whose ids start with a prefix, best first.

    The server's own scores depend on how many documents of all threads have a word. So the newest documents are ranked
    by their own texts.
    """
    client.refresh()
    hit_filter, matching = HitFilter(client, cache), list[Hit]()
    most = max(RANKED, limit * 2 + 10)
    for within in in_threads(client, prefix):
        kinds = {"terms": {"kind": [CHECKPOINT, RUNS]}}
        body = filtered(kinds, *_wanted_words(terms), *within, sort=NEWEST_FIRST)
        looked_at = 0
        for hits in client.pages(body, size=RANKED):
            matching += _hits_of(client, cache, hit_filter, terms, hits, by_themselves=True)
            looked_at += len(hits)
            if looked_at >= most:
                break
    warn_of_damage(hit_filter.damaged.values())
    return best_hits(matching, limit)


def _wanted_words(terms: Sequence[str]) -> list[Json]:
    return [{"term": {"words": {"value": indexed_word(term)}}} for term in terms]


def _hits_of(
    client: Client,
    cache: ThreadCache,
    hit_filter: HitFilter,
    terms: Sequence[str],
    documents: Sequence[StoredDocument],
    *,
    by_themselves: bool = False,
) -> Iterator[Hit]:
    """Make the hits for documents, with the server's scores, or with those of their texts if `by_themselves`."""
    for state, record, document in hit_filter.visible(documents):
        text = _first_match(terms, record)
        if text is not None:
            points = score(terms, text) if by_themselves else document.score
            yield Hit(record.entry(state.thread_id), points, snippet(terms, text))
    for document in documents:
        if document.source["kind"] == RUNS:
            for found, text in _hit_of_runs(client, cache, hit_filter, terms, document):
                yield replace(found, score=score(terms, text)) if by_themselves else found


def _first_match(terms: Sequence[str], record: Record) -> str | None:
    """Find the first text in the record of a checkpoint that has all terms."""
    texts = [searchable(stored.run.items) for stored in record.runs if stored.run.items]
    texts.append(searchable(f"[{record.head},{record.metadata}]"))
    return next((text for text in texts if score(terms, text)), None)


def _hit_of_runs(
    client: Client, cache: ThreadCache, hit_filter: HitFilter, terms: Sequence[str], hit: StoredDocument
) -> Iterator[tuple[Hit, str]]:
    """Make the hit for runs whose own checkpoint was removed, and return its text.

    The hit is the first other checkpoint that shows these words.
    """
    state = hit_filter.state(hit)
    own = {stored.key: stored.run for stored in record_from(hit.source).runs if stored.run.items}
    if state is None or not any(score(terms, searchable(run.items)) for run in own.values()):
        return
    log = Log(client, cache, state.thread_id)
    log.read_state()
    records = log.all_records()
    by_branch = _runs_by_branch(records)
    for record in log.visible_checkpoints(records):
        for extent in wanted(record.manifest):
            runs = by_branch.get(extent.branch, [])
            for index, low, high in walk(extent, runs):
                run = own.get((extent.branch, runs[index].number))
                text = "" if run is None else shown_text(run, low, high)
                if text and score(terms, text):
                    yield Hit(record.entry(state.thread_id), hit.score, snippet(terms, text)), text
                    return


def _runs_by_branch(records: Sequence[Record]) -> dict[str, list[Run]]:
    """The runs of each branch, in the order of their numbers."""
    runs: dict[RunKey, Run] = {stored.key: stored.run for record in records for stored in record.runs}
    by_branch: dict[str, list[Run]] = {}
    for run in sorted(runs.values(), key=lambda run: run.number):
        by_branch.setdefault(run.branch, []).append(run)
    return by_branch
