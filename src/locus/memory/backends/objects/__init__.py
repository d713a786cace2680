"""Object stores: one engine and one layout for S3 and OCI Object Storage."""
