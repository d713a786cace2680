"""Moving in: threads from one store to another, and from those of others into ours.

moves        one thread after another: what is missing is moved, and then verified
reading      checkpoints of a store of ours, each item once        shelf   those items, by number
contents     what a checkpoint holds: its digest, and how to save it as a delta
writing      checkpoints into a store of ours: recognised if they are there, else saved
opening      stores by URL, without making or changing them
report       what came of it
"""

from locus.transfer.copies import copy_store
from locus.transfer.imports import import_store
from locus.transfer.report import Problem, Report

__all__ = ["Problem", "Report", "copy_store", "import_store"]
