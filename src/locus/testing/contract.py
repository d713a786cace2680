"""The contract: all laws together, and the capabilities that each built-in backend must have.

`CoreContract` is for every backend; mix in the laws of the capabilities that yours has (`SearchLaws`, `MetadataLaws`,
`CopyLaws`, `ExpiryLaws`). `CheckpointerContract` is for a backend that can do everything. `DurableContract` adds the
laws of a store that outlives its process: outages, several processes at once, and processes that are killed.

::

    class TestMyBackend(DurableContract):
        required = CheckpointerCapabilities(search=True, ...)

        @pytest.fixture
        def store(self, tmp_path: Path) -> DurableTestStore:
            return MyTestStore(tmp_path)

A durable backend that lacks a capability inherits `CoreContract`, the mixins of those it has, `OutageLaws` and
`DurableLaws`; one whose queries can stall, at a server or on the way to it, inherits `StallLaws` too. The processes
open the store with `get_checkpointer(store.url)`; a backend that is neither built in nor declared as an entry point
names, in `worker_modules`, the module that registers it. Needs `os.fork`.

A backend whose engine works in place inherits the laws a second time, with a store whose `open` returns
`roads.blocking(handle)`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Final

from locus.memory.engine import CheckpointerCapabilities
from locus.testing.laws.base import Laws
from locus.testing.laws.durability.crash import CrashLaws
from locus.testing.laws.durability.damage import DamageLaws
from locus.testing.laws.durability.outage import OutageLaws
from locus.testing.laws.durability.processes import ProcessLaws
from locus.testing.laws.durability.stalls import StallLaws
from locus.testing.laws.handles.capabilities import CapabilityLaws
from locus.testing.laws.handles.lifecycle import HandleLaws
from locus.testing.laws.handles.saver import SaverLaws
from locus.testing.laws.listing.newest_threads import NewestThreadLaws
from locus.testing.laws.listing.order import OrderLaws
from locus.testing.laws.listing.prefixes import PrefixLaws
from locus.testing.laws.listing.thread_lists import ThreadPageLaws, ThreadPatternLaws
from locus.testing.laws.loading.ancestors import AncestorLaws
from locus.testing.laws.loading.cached_loads import CachedLoadLaws, CachedLoadProcessLaws
from locus.testing.laws.loading.diffs import DiffLaws
from locus.testing.laws.loading.exports import ExportLaws
from locus.testing.laws.loading.item_ranges import ItemRangeLaws
from locus.testing.laws.loading.partial_reads import PartialReadLaws
from locus.testing.laws.loading.safety import SafetyLaws
from locus.testing.laws.loading.windows import WindowLaws
from locus.testing.laws.names.ids import IdLaws
from locus.testing.laws.names.namespaces import NamespaceLaws
from locus.testing.laws.removal.deletion import DeletionLaws
from locus.testing.laws.removal.expiry import ExpiryLaws
from locus.testing.laws.removal.sizes import SizeLaws
from locus.testing.laws.removal.vacuum import VacuumCandidateLaws, VacuumLaws
from locus.testing.laws.saving.changes import ChangingConversationLaws, ChangingPayloadLaws
from locus.testing.laws.saving.conflicts import ConflictLaws
from locus.testing.laws.saving.copies import CopyLaws
from locus.testing.laws.saving.cost import CostLaws
from locus.testing.laws.saving.lineage import LineageLaws
from locus.testing.laws.saving.pending_writes import PendingWritesLaws
from locus.testing.laws.saving.refusals import RefusalLaws
from locus.testing.laws.saving.replacement import ReplacementLaws
from locus.testing.laws.saving.round_trip import RoundTripLaws
from locus.testing.laws.saving.shared_commits import SharedCommitLaws
from locus.testing.laws.saving.stale_bases import StaleBaseLaws
from locus.testing.laws.search.metadata import MetadataLaws
from locus.testing.laws.search.words import SearchLaws
from locus.testing.stateful import StatefulLaws

__all__ = [
    "EVERYTHING",
    "REQUIRED",
    "CheckpointerContract",
    "CoreContract",
    "CrashLaws",
    "DurableContract",
    "DurableLaws",
    "ProcessLaws",
    "StallLaws",
]

EVERYTHING: Final = CheckpointerCapabilities(
    search=True,
    metadata_query=True,
    vacuum=True,
    branching=True,
    ttl=True,
    list_threads=True,
    list_with_metadata=True,
    persistent_checkpoint_ids=True,
    windows=True,
)

REQUIRED: Final[dict[str, CheckpointerCapabilities]] = {
    "http": EVERYTHING,
    "memory": EVERYTHING,
    "file": EVERYTHING,
    "sqlite": EVERYTHING,
    "postgresql": EVERYTHING,
    "mysql": EVERYTHING,
    "redis": EVERYTHING,
    "opensearch": EVERYTHING,
    "oci": replace(EVERYTHING, search=False, ttl=False),
    "oracle": EVERYTHING,
    "s3": replace(EVERYTHING, search=False, ttl=False),
}
"""The capabilities that each built-in backend must have. A lost one fails a test, and does not shorten the suite."""


class CoreContract(
    RoundTripLaws,
    ChangingPayloadLaws,
    RefusalLaws,
    IdLaws,
    ThreadPatternLaws,
    ThreadPageLaws,
    NewestThreadLaws,
    PrefixLaws,
    ItemRangeLaws,
    PartialReadLaws,
    CachedLoadLaws,
    AncestorLaws,
    WindowLaws,
    OrderLaws,
    DeletionLaws,
    LineageLaws,
    ChangingConversationLaws,
    ConflictLaws,
    SharedCommitLaws,
    ReplacementLaws,
    StaleBaseLaws,
    CostLaws,
    PendingWritesLaws,
    NamespaceLaws,
    VacuumLaws,
    VacuumCandidateLaws,
    SizeLaws,
    DamageLaws,
    SafetyLaws,
    ExportLaws,
    HandleLaws,
    DiffLaws,
    SaverLaws,
    CapabilityLaws,
    StatefulLaws,
):
    """The laws for every backend. Mix in the laws of the capabilities that yours has, one class for each."""

    laws_of: ClassVar[dict[str, type[Laws]]] = {
        "search": SearchLaws,
        "metadata_query": MetadataLaws,
        "branching": CopyLaws,
        "ttl": ExpiryLaws,
    }


class CheckpointerContract(CoreContract, SearchLaws, MetadataLaws, CopyLaws, ExpiryLaws):
    """All laws for a backend that has every capability.

    A subclass provides the fixture `store`. `DurableContract` adds the laws for backends that other processes can open,
    and that can be out of reach.
    """

    required: ClassVar[CheckpointerCapabilities] = EVERYTHING


class DurableLaws(ProcessLaws, CachedLoadProcessLaws, CrashLaws):
    """The laws of several processes at once, and of processes that are killed."""


class DurableContract(CheckpointerContract, OutageLaws, DurableLaws):
    """All laws, for a backend that has every capability and that other processes can open."""
