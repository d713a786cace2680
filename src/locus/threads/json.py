"""JSON as stores keep it: strict, and the same on every database. What it cannot hold is refused, with its path."""

from locus.memory.model.codec import canonical, check, decode, encode, encode_trusted, path_text, texts_in

__all__ = ["canonical", "check", "decode", "encode", "encode_trusted", "path_text", "texts_in"]
