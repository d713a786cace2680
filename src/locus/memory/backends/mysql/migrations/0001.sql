-- MySQL. schema.py fills in ${prefix}, the beginning of every table name, and sends one statement at a time.
-- Format 1: the first tables.

CREATE TABLE IF NOT EXISTS `${prefix}threads` (
    id bigint NOT NULL AUTO_INCREMENT PRIMARY KEY,
    thread_id varchar(255) NOT NULL,
    last_seq bigint NOT NULL,
    removals bigint NOT NULL DEFAULT 0,
    expires_at datetime(6),
    indexed_seq bigint NOT NULL DEFAULT 0,
    unindexed boolean GENERATED ALWAYS AS (last_seq > indexed_seq) VIRTUAL NOT NULL,
    UNIQUE KEY by_id (thread_id),
    KEY by_end (expires_at),
    KEY by_unindexed (unindexed)
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin;

CREATE TABLE IF NOT EXISTS `${prefix}checkpoints` (
    id bigint NOT NULL AUTO_INCREMENT PRIMARY KEY,
    thread bigint NOT NULL,
    namespace varchar(255) NOT NULL,
    checkpoint_id varchar(255) NOT NULL,
    parent_id varchar(255),
    seq bigint NOT NULL,
    rev varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    created_at datetime(6) NOT NULL,
    metadata json NOT NULL,
    head json NOT NULL,
    manifest json NOT NULL,
    metadata_keys json,
    UNIQUE KEY by_id (thread, namespace, checkpoint_id),
    UNIQUE KEY by_seq (thread, namespace, seq),
    KEY by_metadata ((CAST(metadata_keys AS char(32) ARRAY)))
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin;

CREATE TABLE IF NOT EXISTS `${prefix}runs` (
    thread bigint NOT NULL,
    branch varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    number bigint NOT NULL,
    start bigint NOT NULL,
    count bigint NOT NULL,
    seq bigint NOT NULL,
    items json NOT NULL,
    PRIMARY KEY (thread, branch, number),
    KEY by_seq (thread, seq)
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin;

CREATE TABLE IF NOT EXISTS `${prefix}writes` (
    thread bigint NOT NULL,
    namespace varchar(255) NOT NULL,
    checkpoint_id varchar(255) NOT NULL,
    task_id varchar(255) NOT NULL,
    task_digest binary(32) GENERATED ALWAYS AS (unhex(sha2(task_id, 256))) STORED NOT NULL,
    idx int NOT NULL,
    task_path varchar(255) NOT NULL,
    channel varchar(255) NOT NULL,
    value json NOT NULL,
    PRIMARY KEY (thread, namespace, checkpoint_id, task_digest, idx)
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin;

CREATE TABLE IF NOT EXISTS `${prefix}search` (
    id bigint NOT NULL AUTO_INCREMENT PRIMARY KEY,
    thread bigint NOT NULL,
    checkpoint bigint,
    branch varchar(64) CHARACTER SET ascii COLLATE ascii_bin,
    number bigint,
    words longtext CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    KEY by_run (thread, branch, number),
    KEY by_checkpoint (checkpoint),
    FULLTEXT KEY by_words (words)
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin;
