"""OpenSearch: threads as documents of one index. URLs begin with `opensearch://`, or `opensearchs://` for TLS."""

from locus.memory.backends.opensearch.backend import OpenSearchBackend, from_location, from_secure_location
from locus.memory.backends.opensearch.engine import OpenSearchEngine

__all__ = ["OpenSearchBackend", "OpenSearchEngine", "from_location", "from_secure_location"]
