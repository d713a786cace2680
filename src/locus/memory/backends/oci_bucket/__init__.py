"""OCI Object Storage, through Oracle's SDK. Needs the extra `oci`."""

from locus.memory.backends.oci_bucket.backend import OCIBucketBackend, from_location
from locus.memory.backends.oci_bucket.config import DEFAULT_PREFIX, OCIConfig

__all__ = ["DEFAULT_PREFIX", "OCIBucketBackend", "OCIConfig", "from_location"]
