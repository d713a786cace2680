"""OpenSearch: threads as documents of one index, on a server that others search in, too."""

from locus.memory.backends.opensearch.backend import OpenSearchBackend, from_location, from_secure_location
from locus.memory.backends.opensearch.engine import OpenSearchEngine

__all__ = ["OpenSearchBackend", "OpenSearchEngine", "from_location", "from_secure_location"]
