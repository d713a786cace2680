"""Oracle's errors, and which of them PostgreSQL's become."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol


class OracleError(Exception):
    """An error that the client sees as ORA-<code>."""

    def __init__(self, code: int, message: str, position: int = 0) -> None:
        super().__init__(f"ORA-{code:05}: {message}")
        self.code = code
        self.position = position

    @property
    def text(self) -> str:
        return str(self)


class Failure(Protocol):
    """What PostgreSQL says about a failure."""

    state: str
    message: str
    detail: str
    schema: str
    table: str
    column: str
    constraint: str


SIMPLE = {
    "22003": (1438, "value larger than specified precision allowed for this column"),
    "22012": (1476, "divisor is equal to zero"),
    "22007": (1843, "An invalid month was specified."),
    "22008": (1830, "date format picture ends before converting entire input string"),
    "25006": (1456, "may not perform insert, delete, update operation inside a READ ONLY transaction"),
    "40001": (8177, "can't serialize access for this transaction"),
    "40P01": (60, "deadlock detected while waiting for resource"),
    "42702": (918, "column ambiguously defined"),
    "42803": (979, "not a GROUP BY expression"),
    "42804": (932, "inconsistent datatypes"),
    "42883": (932, "inconsistent datatypes"),
    "42P18": (932, "inconsistent datatypes"),
    "42846": (932, "inconsistent datatypes"),
    "42704": (1418, "specified index does not exist"),
    "42710": (2264, "name already used by an existing constraint"),
    "55P03": (54, "Failed to acquire a lock because it is currently held by another session."),
    "57014": (1013, "user requested cancel of current operation"),
    "57P01": (28, "Your session has been terminated."),
    "57P02": (28, "Your session has been terminated."),
    "57P03": (1034, "The Oracle instance is not available for use."),
    "OR408": (1408, "such column list already indexed"),
    "OR030": (30, "User session ID does not exist."),
    "42P10": (1791, "not a SELECTed expression"),
    "2BP01": (2449, "unique/primary keys in table referenced by foreign keys"),
}


def translated_error(error: Failure, verb: str, user: str) -> OracleError:
    """ORA- codes and texts: Error Messages, by their numbers."""
    special = SPECIAL.get(error.state)
    if special is not None:
        return special(error, verb, user)
    if error.state in SIMPLE:
        code, message = SIMPLE[error.state]
        return OracleError(code, f"{message} ({error.message})" if code == 932 else message)
    return _internal(error)


def _quoted(message: str) -> str:
    found = re.findall(r'"([^"]+)"', message)
    return found[-1] if found else message


def _unique(error: Failure, verb: str, user: str) -> OracleError:
    columns = re.search(r"Key \((.*?)\)=", error.detail)
    told = columns[1].replace('"', "") if columns else "?"
    name = f"{error.schema}.{error.constraint}"
    return OracleError(1, f"unique constraint ({name}) violated on table {error.schema}.{error.table} columns ({told})")


def _null(error: Failure, verb: str, user: str) -> OracleError:
    if verb == "ALTER":
        return OracleError(1758, "table must be empty to add mandatory (NOT NULL) column")
    place = f'("{error.schema}"."{error.table}"."{error.column}")'
    if verb == "UPDATE":
        return OracleError(1407, f"cannot update {place} to NULL")
    return OracleError(1400, f"cannot insert NULL into {place}")


def _foreign_key(error: Failure, verb: str, user: str) -> OracleError:
    name = f"({error.schema}.{error.constraint})"
    if "still referenced" in error.detail:
        return OracleError(2292, f"integrity constraint {name} violated - child record found")
    return OracleError(2291, f"integrity constraint {name} violated - parent key not found")


def _check(error: Failure, verb: str, user: str) -> OracleError:
    return OracleError(2290, f"check constraint ({error.schema}.{error.constraint}) violated")


def _too_large(error: Failure, verb: str, user: str) -> OracleError:
    place = f'"{error.column}"'
    return OracleError(12899, f"value too large for column {place} ({error.message})")


def _no_table(error: Failure, verb: str, user: str) -> OracleError:
    name = _quoted(error.message).split(".")
    owner, table = name if len(name) == 2 else (user, name[0])
    if verb == "DROP SEQUENCE":
        return OracleError(2289, "sequence does not exist")
    return OracleError(942, f'table or view "{owner}"."{table}" does not exist')


def _no_column(error: Failure, verb: str, user: str) -> OracleError:
    found = re.search(r'column "?([^"]+?)"? (?:of relation .* )?does not exist', error.message)
    return OracleError(904, f'"{found[1] if found else error.message}": invalid identifier')


def _exists(error: Failure, verb: str, user: str) -> OracleError:
    return OracleError(955, f'name "{_quoted(error.message)}" is already used by an existing object')


def _column_exists(error: Failure, verb: str, user: str) -> OracleError:
    if verb == "ALTER":
        return OracleError(1430, "column being added already exists in table")
    return OracleError(957, "duplicate column name")


def _bad_text(error: Failure, verb: str, user: str) -> OracleError:
    if "json" in error.message:
        return OracleError(40441, "JSON syntax error")
    if "numeric" in error.message or "bigint" in error.message:
        return OracleError(1722, "unable to convert string value to a number")
    return OracleError(1858, "A non-numeric character was found instead of a numeric character.")


def _cardinality(error: Failure, verb: str, user: str) -> OracleError:
    if verb == "MERGE":
        return OracleError(30926, "unable to get a stable set of rows in the source tables")
    return OracleError(1427, "single-row subquery returns more than one row")


def _unsupported(error: Failure, verb: str, user: str) -> OracleError:
    if verb == "TRUNCATE":
        return OracleError(2266, "unique/primary keys in table referenced by enabled foreign keys")
    if "FOR UPDATE" in error.message:
        return OracleError(1786, "FOR UPDATE of this query expression is not allowed")
    return _internal(error)


def _syntax(error: Failure, verb: str, user: str) -> OracleError:
    """Only what needs the table's definition: the rest is the grammar's."""
    if "more expressions than target columns" in error.message:
        return OracleError(913, "too many values")
    if "more target columns than expressions" in error.message:
        return OracleError(947, "not enough values")
    return _internal(error)


def _internal(error: Failure) -> OracleError:
    """Something that this emulator does not know: never Oracle's own opinion."""
    return OracleError(600, f"internal error code, arguments: [{error.state}], [{error.message}], [{error.detail}]")


def _no_schema(error: Failure, verb: str, user: str) -> OracleError:
    return OracleError(942, f"table or view does not exist ({_quoted(error.message)})")


def _user(code: int, message: str) -> Callable[[Failure, str, str], OracleError]:
    return lambda error, verb, user: OracleError(code, message.format(error.message))


SPECIAL: dict[str, Callable[[Failure, str, str], OracleError]] = {
    "0A000": _unsupported,
    "21000": _cardinality,
    "23505": _unique,
    "23502": _null,
    "23503": _foreign_key,
    "23514": _check,
    "22P02": _bad_text,
    "3F000": _no_schema,
    "42601": _syntax,
    "42P01": _no_table,
    "42703": _no_column,
    "42P07": _exists,
    "42701": _column_exists,
    "OR899": _too_large,
    "OR467": _user(40467, "JSON_TEXTCONTAINS() cannot be evaluated without a JSON-enabled context index on {}"),
    "OR470": _user(40470, "A JSON search index needs one column of JSON: {}"),
    "OR902": _user(29902, "error in executing ODCIIndexStart() routine: {}"),
    "OR917": _user(1917, 'user or role "{}" does not exist'),
    "OR918": _user(1918, 'user "{}" does not exist'),
    "OR920": _user(1920, 'user name "{}" conflicts with another user or role name'),
    "OR922": _user(1922, 'CASCADE must be specified to drop "{}"'),
    "OR940": _user(1940, "cannot drop a user that is currently connected"),
}
