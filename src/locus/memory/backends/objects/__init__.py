"""What the backends on object stores share: one layout for S3 and OCI Object Storage."""
