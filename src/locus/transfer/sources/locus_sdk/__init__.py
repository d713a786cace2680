"""Reads threads of locus-sdk 3.

    source      checkpoints of any of its stores as checkpoints to move
    folder      FileCheckpointer
    key_value   the layout that its key-value stores share: Redis, PostgreSQL, MySQL, Oracle Database and OpenSearch
    redis, sql, opensearch
                readers for each of them; `sql` also reads the tables of PgCheckpointer and OracleCheckpointSaver
    bucket      S3 and OCI Object Storage

Every checkpoint of locus-sdk 3 is a whole state.
"""
