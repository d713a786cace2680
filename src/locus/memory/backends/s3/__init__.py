"""S3, and whatever speaks it with conditional writes: MinIO, Cloudflare R2, Ceph, SeaweedFS."""

from locus.memory.backends.s3.backend import PREFIX, S3Backend, from_location

__all__ = ["PREFIX", "S3Backend", "from_location"]
