"""A model for tests and demos that needs no key and no network, and still follows the conversation.

It remembers facts that a user tells it, answers questions about them, calls the tools that a request asks for, and
answers from their results. It answers equal conversations equally. `MockModel(script=[…])` replays given responses
instead.
"""

from locus.models.mock.model import MockCall, MockModel, Scripted

__all__ = ["MockCall", "MockModel", "Scripted"]
