"""The backends under measurement. To add one: a subclass of `Subject` in a module here, and its name in `SUBJECTS`."""

from __future__ import annotations

from benchmarks.subjects.base import Subject
from benchmarks.subjects.embedded import FileSubject, MemorySubject, SQLiteNormalSubject, SQLiteSubject
from benchmarks.subjects.http import HTTPSubject
from benchmarks.subjects.mysql import MySQLSubject
from benchmarks.subjects.oci import OCISubject
from benchmarks.subjects.opensearch import OpenSearchSubject
from benchmarks.subjects.oracle import OracleSubject
from benchmarks.subjects.postgresql import PostgreSQLSubject
from benchmarks.subjects.redis import RedisSubject, RedisUnsyncedSubject
from benchmarks.subjects.s3 import S3Subject

SUBJECTS: dict[str, type[Subject]] = {
    subject.name: subject
    for subject in (
        MemorySubject,
        FileSubject,
        SQLiteSubject,
        SQLiteNormalSubject,
        PostgreSQLSubject,
        MySQLSubject,
        RedisSubject,
        RedisUnsyncedSubject,
        OpenSearchSubject,
        OracleSubject,
        OCISubject,
        S3Subject,
        HTTPSubject,
    )
}
