"""S3, and every server that speaks it with conditional writes: MinIO, Cloudflare R2, Ceph, SeaweedFS."""

from locus.memory.backends.s3.backend import S3Backend, from_location
from locus.memory.backends.s3.config import PREFIX, S3Config

__all__ = ["PREFIX", "S3Backend", "S3Config", "from_location"]
