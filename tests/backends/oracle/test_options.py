"""What the options, URLs and errors of Oracle Database mean, without a server; and that its driver knows them."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import oracledb
import pytest
from oracledb import errors as driver_errors
from pydantic import BaseModel, SecretStr

from locus.errors import (
    BackendUnavailableError,
    CheckpointError,
    ConfigurationError,
    CorruptCheckpointError,
    SerializationError,
)
from locus.memory import get_checkpointer
from locus.memory.backends import (
    OracleBackend,
    OracleCheckpointSaver,
    OracleSyncBackend,
    OracleSyncCheckpointSaver,
    StorageBackendAdapter,
    oracle_checkpointer,
)
from locus.memory.backends.oracle.client import (
    Connector,
    OracleConnection,
    check_version,
    misconfigured,
    translated,
    trouble_of,
)
from locus.memory.backends.oracle.config import OracleConfig
from locus.memory.backends.oracle.schema import FORMAT
from locus.memory.backends.sql.engine import Trouble

SECRET = "s3cr%t/p@ss:word?"
CLASSES = [OracleBackend, OracleCheckpointSaver, OracleSyncBackend, OracleSyncCheckpointSaver]


def backend_of(checkpointer: Any) -> OracleBackend:
    assert isinstance(checkpointer, StorageBackendAdapter)
    assert isinstance(checkpointer.backend, OracleBackend)
    return checkpointer.backend


def error(code: str) -> oracledb.Error:
    """As the driver makes them."""
    number = int(code[4:]) if code.startswith("ORA-") else 0
    told = driver_errors._Error(f"{code}: as the server put it, {SECRET}", code=number)
    made: oracledb.Error = told.exc_type(told)
    return made


def test_it_is_a_pydantic_model_whose_options_can_be_read_and_not_changed() -> None:
    backend = OracleBackend("mydb_high", "locus", SECRET, "/wallet", SecretStr("w"), table_name="agents")
    assert isinstance(backend, BaseModel)
    assert (backend.dsn, backend.user, backend.table_name, backend.port) == ("mydb_high", "locus", "agents", 1521)
    assert backend.password.get_secret_value() == SECRET
    with pytest.raises(ValueError, match="frozen"):
        backend.table_name = "others"  # type: ignore[misc]


@pytest.mark.parametrize("kind", CLASSES)
def test_all_four_take_the_same_arguments_in_the_same_order(kind: Any) -> None:
    names = ["dsn", "user", "password", "wallet_location", "wallet_password", "host", "port", "service_name"]
    parameters = inspect.signature(kind).parameters
    assert list(parameters)[: len(names)] == names
    assert (parameters["dsn"].default, parameters["user"].default, parameters["port"].default) == (None, "admin", 1521)
    kind(dsn="h:1521/s", table_name="agents", schema_name="app", min_pool_size=0, max_pool_size=2)


def test_an_empty_wallet_password_is_none() -> None:
    for empty in ("", SecretStr("")):
        backend = OracleBackend("mydb_low", wallet_location="/wallet", wallet_password=empty)
        assert backend.wallet_password is None
        assert "wallet_password" not in backend.driver_parameters()


def test_the_wallet_is_where_the_aliases_are_unless_another_folder_is_named() -> None:
    found = OracleBackend("mydb_low", wallet_location="~/wallet", wallet_password="w").driver_parameters()
    home = str(Path("~/wallet").expanduser())
    assert (found["wallet_location"], found["config_dir"], found["wallet_password"]) == (home, home, "w")
    found = OracleBackend("mydb_low", wallet_location="/wallet", config_dir="/etc/oracle").driver_parameters()
    assert (found["wallet_location"], found["config_dir"]) == ("/wallet", "/etc/oracle")


@pytest.mark.parametrize(
    ("options", "protocol"),
    [
        ({"host": "db"}, "tcp"),
        ({"host": "adb.us-ashburn-1.oraclecloud.com", "port": 1522}, "tcps"),
        ({"host": "adb.us-ashburn-1.oraclecloud.com"}, "tcps"),
        ({"host": "db", "port": 2484}, "tcps"),
        ({"host": "db", "wallet_location": "/w"}, "tcps"),
        ({"host": "db", "port": 1522, "protocol": "tcp"}, "tcp"),
    ],
)
def test_the_cloud_and_wallets_are_spoken_to_by_tls(options: dict[str, Any], protocol: str) -> None:
    found = OracleBackend(service_name="s", **options).driver_parameters()
    assert (found["protocol"], found["service_name"]) == (protocol, "s")
    assert "dsn" not in found


FULL: dict[str, Any] = {
    "wallet_location": "/w",
    "wallet_password": "w",
    "config_dir": "/c",
    "password": SECRET,
    "user": "u",
}


@pytest.mark.parametrize("place", [{"dsn": "alias"}, {"host": "h", "service_name": "s", "protocol": "tcps"}])
@pytest.mark.parametrize("function", [oracledb.connect_async, oracledb.create_pool_async])
def test_the_driver_knows_every_parameter(place: dict[str, Any], function: Any) -> None:
    """The driver's own functions take any keyword at first, so it is the signature that tells a typing error."""
    found = OracleBackend(**place, **FULL).driver_parameters()
    assert found.keys() >= {"wallet_location", "wallet_password", "config_dir", "stmtcachesize", "expire_time"}
    accepted = inspect.signature(function)
    assert not any(kind.kind is inspect.Parameter.VAR_KEYWORD for kind in accepted.parameters.values())
    accepted.bind(**found)
    with pytest.raises(TypeError):
        accepted.bind(**found, wallet_locaton="/w")
    # And their types are what it takes.
    assert oracledb.ConnectParams(**{name: value for name, value in found.items() if name != "dsn"}).user == "u"


def test_the_driver_has_everything_that_is_used_of_it() -> None:
    source = inspect.getsource(inspect.getmodule(OracleConnection) or OracleConnection)
    for name in ("autocommit", "transaction_in_progress", "version"):
        assert f"raw.{name}" in source
        assert isinstance(getattr(oracledb.AsyncConnection, name), property)
    for name in ("cancel", "close", "commit", "createlob", "cursor", "is_healthy", "rollback", "terminate"):
        assert f"raw.{name}(" in source
        assert callable(getattr(oracledb.AsyncConnection, name))
    for name in ("execute", "executemany", "fetchall", "setinputsizes", "var"):
        assert f"cursor.{name}(" in source
        assert callable(getattr(oracledb.AsyncCursor, name))
    for name in ("arraysize", "description", "rowcount"):
        assert f"cursor.{name}" in source
        assert hasattr(oracledb.AsyncCursor, name)
    assert isinstance(oracledb.DB_TYPE_JSON, oracledb.DbType)


def test_a_url_says_everything_and_its_parts_are_decoded() -> None:
    url = "oracle://us%40er:s3cr%25t%2Fp%40ss%3Aword%3F@db.example:1522/my.service?table_name=agents&max_pool_size=3"
    backend = backend_of(get_checkpointer(url, ttl_seconds=60))
    assert (backend.host, backend.port, backend.service_name, backend.user) == (
        "db.example",
        1522,
        "my.service",
        "us@er",
    )
    assert backend.password.get_secret_value() == SECRET
    assert (backend.table_name, backend.max_pool_size, backend.ttl_seconds) == ("agents", 3, 60)


def test_a_url_without_a_service_names_an_alias() -> None:
    backend = backend_of(get_checkpointer("oracle://app:pw@mydb_high?wallet_location=/w&wallet_password="))
    assert (backend.dsn, backend.host, str(backend.wallet_location)) == ("mydb_high", None, "/w")
    assert backend.wallet_password is None
    assert OracleConfig.options_in("oracle://h/s") == {"host": "h", "service_name": "s"}


@pytest.mark.parametrize(
    "url",
    [
        "oracle",
        f"oracle://u:{SECRET}@h:port/d",
        "oracle://u:hunter2@h:99999999/d",
        "oracle://u:hunter2@h:1521",
        "oracle://u:hunter2@h/d/e",
        "oracle://u:hunter2@h/d#x",
        "oracle:u:hunter2@h/d",
        "oracle://u:hunter2@h/d?password=hunter2",
        "oracle://u:hunter2@h/d?colour=hunter2",
        "oracle://u:hunter2@h/d?max_pool_size=hunter2",
    ],
)
def test_a_url_that_cannot_work_is_refused_without_being_repeated(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        get_checkpointer(url)
    assert "hunter2" not in str(caught.value)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None or "hunter2" not in str(caught.value.__cause__)


@pytest.mark.parametrize(
    "options",
    [
        {"table_name": "a-b"},
        {"table_name": "1a"},
        {"table_name": "_a"},
        {"table_name": ""},
        {"table_name": "x" * 91},
        {"table_name": 'a"; DROP TABLE x'},
        {"schema_name": "a.b"},
        {"schema_name": ""},
        {"max_pool_size": 0},
        {"min_pool_size": 5, "max_pool_size": 2},
        {"connect_timeout": 0},
        {"command_timeout": -1},
        {"ttl_seconds": 0},
        {"port": "x"},
        {"protocol": "http"},
        {"colour": "blue"},
        {"threads": object()},
        {"dsn": None},
        {"host": "h", "service_name": "s"},
        {"dsn": None, "host": "h"},
    ],
)
@pytest.mark.parametrize("kind", [*CLASSES, oracle_checkpointer])
def test_options_that_cannot_work_are_refused(kind: Any, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        kind(**({"dsn": "alias", "password": SECRET} | options))
    assert SECRET not in str(caught.value)


def test_no_secret_is_in_any_text() -> None:
    backend = OracleBackend(f"app/{SECRET}@h/s", password=SECRET, wallet_password=SECRET)
    engine = backend.store.engine
    connector = repr(Connector(backend))
    for text in (repr(backend), str(backend), backend.address, engine.identity, repr(vars(engine)), connector):
        assert SECRET not in text
    saver = OracleCheckpointSaver("alias", password=SECRET)
    assert SECRET not in f"{saver!r} {saver}"
    assert SECRET not in repr(OracleSyncBackend("alias", password=SECRET))
    assert SECRET not in repr(OracleSyncCheckpointSaver("alias", password=SECRET))


SECRET_DSNS = [
    f"app/{SECRET}@nosuch",
    f"app/{SECRET}@127.0.0.1:1/s?wallet_password={SECRET}",
    f"(DESCRIPTION=(ADDRESS=(PROTOCOL=tcps)(HOST=127.0.0.1)(PORT=1))(SECURITY=(WALLET_PASSWORD={SECRET})))",
    f"(DESCRIPTION=(ADDRESS={SECRET}",
]


@pytest.mark.parametrize("dsn", SECRET_DSNS)
async def test_a_password_in_a_dsn_is_in_no_text(dsn: str) -> None:
    config = OracleConfig(dsn=dsn)
    assert config.dsn == dsn
    assert SECRET not in f"{config!r} {config}"
    assert f"dsn='{config.address}'" in repr(config)
    async with OracleBackend(dsn, retry_seconds=0) as backend:
        with pytest.raises((ConfigurationError, BackendUnavailableError)) as caught:
            await backend.load("thread")
    error: BaseException | None = caught.value
    while error is not None:
        assert SECRET not in f"{error} {error!r}"
        error = error.__cause__ or error.__context__


def test_two_databases_are_told_apart_by_their_addresses() -> None:
    descriptors = [f"(DESCRIPTION=(ADDRESS=(HOST={host})))" for host in "ab"]
    backends = [OracleBackend(dsn) for dsn in ("a", "b", *descriptors)]
    assert len({backend.store.engine.identity for backend in backends}) == 4


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        ("ORA-01017", BackendUnavailableError, "user and password"),
        ("ORA-28000", BackendUnavailableError, "locked"),
        ("ORA-28001", BackendUnavailableError, "expired"),
        ("ORA-01045", BackendUnavailableError, "CREATE SESSION"),
        ("ORA-12541", BackendUnavailableError, "cannot be reached"),
        ("ORA-12170", BackendUnavailableError, "cannot be reached"),
        ("ORA-03113", BackendUnavailableError, "cannot be reached"),
        ("ORA-03114", BackendUnavailableError, "cannot be reached"),
        ("ORA-00028", BackendUnavailableError, "ended the connection"),
        ("DPY-4011", BackendUnavailableError, "ended the connection"),
        ("DPY-6000", BackendUnavailableError, "cannot be reached"),
        ("DPY-6001", BackendUnavailableError, "service_name"),
        ("DPY-6005", BackendUnavailableError, "cannot be reached"),
        ("DPY-4024", BackendUnavailableError, "command_timeout"),
        ("ORA-01653", BackendUnavailableError, "full"),
        ("ORA-30036", BackendUnavailableError, "undo"),
        ("ORA-01950", BackendUnavailableError, "QUOTA"),
        ("ORA-16000", BackendUnavailableError, "primary"),
        ("ORA-00060", BackendUnavailableError, "each other's way"),
        ("ORA-00020", BackendUnavailableError, "max_pool_size"),
        ("ORA-40467", BackendUnavailableError, "search index"),
        ("ORA-12899", SerializationError, "too long"),
        ("DPY-3020", SerializationError, "key"),
        ("ORA-00942", CorruptCheckpointError, "damaged"),
        ("ORA-00904", CorruptCheckpointError, "damaged"),
        ("ORA-09999", BackendUnavailableError, "failed"),
    ],
)
def test_errors_say_what_to_do_and_never_a_password(code: str, kind: type[CheckpointError], words: str) -> None:
    made = translated(error(code), "h:1/d", [SECRET])
    assert type(made) is kind
    assert words in str(made)
    assert code in str(made)
    assert "as the server put it" in str(made)
    assert SECRET not in str(made)
    assert "docs.oracle.com" not in str(made)


def test_what_is_tried_again() -> None:
    for again in ("ORA-00001", "ORA-02291", "ORA-00060", "ORA-08177"):
        assert trouble_of(error(again)) is Trouble.ROLLED_BACK
    for lost in ("ORA-03113", "ORA-00028", "ORA-12541", "ORA-01033", "DPY-4011", "DPY-6005", "ORA-00054"):
        assert trouble_of(error(lost)) is Trouble.LOST
    assert trouble_of(ConnectionResetError()) is Trouble.LOST
    for final in ("ORA-01017", "ORA-00942", "ORA-01653", "DPY-4024", "ORA-16000"):
        assert trouble_of(error(final)) is Trouble.FINAL
    assert trouble_of(TimeoutError()) is Trouble.FINAL


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dsn": "no_such_alias"}, "config_dir"),
        ({"dsn": "no_such_alias", "config_dir": "/no/such/folder"}, "tnsnames.ora"),
        ({"dsn": "(DESCRIPTION=("}, "dsn"),
        ({"dsn": "gopher://h/s"}, "tcp"),
    ],
)
async def test_an_address_that_cannot_work_is_no_outage(options: dict[str, Any], words: str) -> None:
    async with oracle_checkpointer(password=SECRET, **options) as checkpointer:
        with pytest.raises(ConfigurationError, match=words) as caught:
            await checkpointer.load("thread")
    assert SECRET not in str(caught.value)


def test_an_alias_that_is_in_no_file_is_no_outage() -> None:
    assert misconfigured(error("DPY-4000"), "h") is not None
    assert misconfigured(error("DPY-6005"), "h") is None


async def test_a_server_that_is_not_there_is_an_outage() -> None:
    async with oracle_checkpointer("127.0.0.1:1/none", password=SECRET, retry_seconds=0) as checkpointer:
        with pytest.raises(BackendUnavailableError, match=r"127\.0\.0\.1:1/none") as caught:
            await checkpointer.load("thread")
    assert SECRET not in str(caught.value)


def test_old_versions_are_refused() -> None:
    for version in ("21.3.0.0.0", "23.26.0.0.0", "26.1"):
        check_version(version, "h")
    for version in ("19.3.0.0.0", "11.2", "nonsense"):
        with pytest.raises(ConfigurationError, match="21c"):
            check_version(version, "h")


def test_the_ddl_can_be_printed() -> None:
    text = OracleBackend.ddl("agents", "app", grantee="worker")
    assert text.count("CREATE TABLE app.agents_") == 7
    assert text.count("GRANT SELECT, INSERT, UPDATE, DELETE ON app.agents_") == 7
    assert "CREATE SEARCH INDEX app.agents_search_by_words ON app.agents_search (words) FOR JSON" in text
    assert "GRANT" not in OracleBackend.ddl()
    wrong: list[dict[str, Any]] = [{"table_name": "a b"}, {"schema_name": "a.b"}, {"grantee": "x; DROP USER y"}]
    for bad in (*wrong, {"from_format": 9}, {"from_format": True}):
        with pytest.raises(ConfigurationError):
            OracleBackend.ddl(**bad)


def test_the_ddl_of_a_migration_can_be_printed() -> None:
    text = OracleBackend.ddl("agents", from_format=1)
    assert "CREATE TABLE" not in text
    assert "ALTER TABLE agents_runs ADD (items_before VARCHAR2(64));" in text
    assert f"SET version = {FORMAT} " in text


DESCRIPTOR = "(DESCRIPTION=(ADDRESS=(PROTOCOL=tcp)(HOST=a@b)(PORT=1)))"


@pytest.mark.parametrize(
    ("dsn", "given", "expected"),
    [
        ("scott/tiger@h:1521/s", {}, ("scott", "tiger", "h:1521/s")),
        ("scott/ti@ger@alias", {}, ("scott", "ti@ger", "alias")),
        ("scott@alias", {"password": "tiger"}, ("scott", "tiger", "alias")),
        ("scott/tiger@alias", {"user": "scott", "password": "tiger"}, ("scott", "tiger", "alias")),
        (f"scott/ti/ger@{DESCRIPTOR}", {}, ("scott", "ti/ger", DESCRIPTOR)),
        (DESCRIPTOR, {"user": "u", "password": "p"}, ("u", "p", DESCRIPTOR)),
        ("h:1521/s", {"user": "u", "password": "p@q"}, ("u", "p@q", "h:1521/s")),
        ("alias", {}, ("admin", "", "alias")),
    ],
)
def test_a_dsn_may_name_the_user_and_the_password(
    dsn: str, given: dict[str, str], expected: tuple[str, str, str]
) -> None:
    found = OracleConfig(dsn=dsn, **given).driver_parameters()
    assert (found["user"], found["password"], found["dsn"]) == expected


@pytest.mark.parametrize("given", [{"user": "other"}, {"password": "other"}])
def test_a_dsn_and_an_option_that_differ_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="give one") as caught:
        OracleConfig(dsn=f"scott/{SECRET}@alias", **given)
    assert SECRET not in str(caught.value)
