"""Moves threads from one store to another, and from the stores of other libraries into a Locus store.

    copies, imports   the two entry points, `copy_store` and `import_store`
    stores            opens stores by URL, without creating or changing a source
    move              moves each thread: saves the checkpoints that are missing, then verifies all
    read              reads checkpoints from a Locus store, each item once
    sources           reads checkpoints from the stores of other libraries
    content           the content of a checkpoint: its digest, and the plan of its save as a delta
    items             the items of one thread, by number
    digests           digests that do not depend on how a payload is stored
    write             writes checkpoints to a Locus store, except for those that it has already
    report            the result

To import from another library, write a `sources.Source`, and open it in `imports`.
"""

from locus.transfer.copies import copy_store
from locus.transfer.imports import import_store
from locus.transfer.report import Problem, Report

__all__ = ["Problem", "Report", "copy_store", "import_store"]
