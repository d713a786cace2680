"""A model that needs no key and no network, and follows the conversation all the same.

It remembers what it is told, answers questions about it, calls the tools that a request asks for, and answers
from their results. The same conversation always gets the same answer. `MockModel(script=[…])` replays
responses instead, for tests.
"""

from locus.models.mock.model import MockCall, MockModel, Scripted

__all__ = ["MockCall", "MockModel", "Scripted"]
