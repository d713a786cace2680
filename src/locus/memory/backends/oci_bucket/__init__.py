"""Threads in a bucket of OCI Object Storage, through Oracle's own SDK. Needs the extra `oci`."""

from locus.memory.backends.oci_bucket.backend import DEFAULT_PREFIX, OCIBucketBackend, from_location

__all__ = ["DEFAULT_PREFIX", "OCIBucketBackend", "from_location"]
