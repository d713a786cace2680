"""Values that cannot change, so that an identity check can replace a comparison.

A save has to find the parts of a state that have changed since the last save. If objects are immutable at every depth,
it is enough to check whether they are the same objects, which costs the same at ten messages and at ten thousand.

- `freeze` turns dicts and lists, at any depth, into `FrozenDict` and `FrozenList`. They equal, print and
  serialise as ordinary dicts and lists do, and refuse to be changed.
- `Items` is the tuple that a state keeps its messages in. It remembers which older tuple it was derived
  from by `+` or by slicing, so that a save finds the new items without comparing any.
- `Remembering` is the base class of a state. Its `Lineage` says which checkpoints the state was last loaded from or
  saved as, and every state that is derived from it inherits that.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType, NoneType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, Self, SupportsIndex, TypeGuard, TypeVar, overload

from pydantic import AfterValidator, BaseModel, ConfigDict, PrivateAttr
from pydantic.fields import FieldInfo

from locus.errors import SerializationError

T = TypeVar("T", covariant=True)


def _refuse(self: object, *_args: object, **_kwargs: object) -> NoReturn:
    raise TypeError(f"{type(self).__name__} belongs to an immutable state: make a changed copy (with_* or dict(...))")


class FrozenDict(dict[str, Any]):
    """A dict that refuses to change. `dict(frozen)` makes a copy that can."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self))

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[type[Self], tuple[dict[str, Any]]]:
        return type(self), (dict(self),)


class FrozenList(list[Any]):
    """A list that refuses to change. `list(frozen)` makes a copy that can."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(len(self))

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[type[Self], tuple[list[Any]]]:
        return type(self), (list(self),)


EMPTY = FrozenDict()


def freeze(value: Any) -> Any:
    """Return `value` with every dict and list in it frozen; anything else is left as it is."""
    try:
        return _frozen(value)
    except RecursionError:
        raise SerializationError("a value holds itself, or is nested too deeply to be stored") from None


def _frozen(value: Any) -> Any:
    kind = type(value)
    if kind is FrozenDict or kind is FrozenList or kind is str:
        return value
    if isinstance(value, dict):
        return FrozenDict({key: _frozen(item) for key, item in value.items()}) if value else EMPTY
    if isinstance(value, list | tuple):
        return FrozenList([_frozen(item) for item in value])
    return value


FrozenMapping = Annotated[dict[str, Any], AfterValidator(freeze)]
FrozenValue = Annotated[Any, AfterValidator(freeze)]


class Frozen(BaseModel):
    """The base class of all data models. Instances are immutable at every depth, and keep unknown fields."""

    model_config = ConfigDict(frozen=True, extra="allow")
    if not TYPE_CHECKING:  # Pyright would take it for a parameter of every constructor.
        # No string, as `from __future__ import annotations` makes of it: below pydantic 2.13 a string is resolved in
        # the module of each subclass, which does not know this name.
        __pydantic_extra__: dict[str, FrozenValue]

    # Pydantic does not validate in these two methods, and would let in a dict that the caller goes on changing.
    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        return super().model_copy(update=update and _frozen_fields(type(self), update), deep=deep)

    @classmethod
    def model_construct(cls, _fields_set: set[str] | None = None, **values: Any) -> Self:  # type: ignore[override]
        return super().model_construct(_fields_set, **_frozen_fields(cls, values))


def _frozen_fields(kind: type[BaseModel], values: Mapping[str, Any]) -> dict[str, Any]:
    """Field values, frozen in the way that validation freezes them."""
    fields = kind.model_fields
    return {
        name: as_items(value) if _is_items(fields.get(name), value) else freeze(value) for name, value in values.items()
    }


def _is_items(field: FieldInfo | None, value: Any) -> bool:
    """Whether a field holds this value as `Items`: the field is a list of the state, or the value contains models."""
    if field is None or not isinstance(value, list | tuple):
        return False
    return isinstance(field.default, Items) or any(isinstance(item, BaseModel) for item in value)


# Exactly these types are immutable to the bottom; a subclass may hold anything, and is compared by content.
_TRUSTED: set[type] = {str, int, float, bool, NoneType}
# The fields of a trusted type that hold further models.
_INNER: dict[type, tuple[str, ...]] = {}
M = TypeVar("M", bound=BaseModel)


def trust(*inner: str) -> Callable[[type[M]], type[M]]:
    """Declare that instances of exactly this class never change, provided the models in its fields `inner` don't."""

    def declare(kind: type[M]) -> type[M]:
        _TRUSTED.add(kind)
        _INNER[kind] = inner
        return kind

    return declare


def is_ours(item: object) -> TypeGuard[BaseModel]:
    """Whether an object's class is one that `trust` has declared. Asking pydantic takes ten times as long."""
    return type(item) in _INNER


def trusted(item: object) -> bool:
    """Whether an object can never change, so that the same object means the same content."""
    kind = type(item)
    if kind not in _TRUSTED:
        return False
    for name in _INNER.get(kind, ()):
        value = getattr(item, name)
        if value and type(value) is not str and not (type(value) is Items and value.stable):
            return False
    return True


class Items(tuple[T, ...]):
    """An immutable sequence that knows which older sequence, its root, it grew out of.

    `items[:kept]` are the very objects `root[skip:skip + kept]`. A sequence without a root is itself a root.
    """

    omitted: int = 0
    """How many items of the thread come before the first of these, if only a window of the thread was loaded."""

    _root: "Items[T] | None" = None
    _skip: int = 0
    _kept: int = 0
    _stable: bool | None = None

    @property
    def stable(self) -> bool:
        """Whether every item is of a type that never changes, so that identity means equality."""
        if self._stable is None:
            self._stable = all(map(trusted, self))
        return self._stable

    def shared_with(self, older: tuple[object, ...]) -> tuple[int, int] | None:
        """`(skip, kept)` if this sequence is known to start with `older[skip:skip + kept]`, else None."""
        if self is older:
            return 0, len(self)
        return (self._skip, self._kept) if self._root is not None and self._root is older else None

    def anchor(self, stable: bool | None = None) -> None:
        """Make this sequence the root of those derived from it later, because it was just saved or loaded.

        Pass `stable=True` if every item is known to be of a type that never changes.
        """
        if self._root is not None:
            self._root, self._skip, self._kept = None, 0, 0
        if stable:
            self._stable = True

    def _derived_from(self, source: "Items[T]", skip: int, kept: int, stable: bool) -> "Items[T]":
        root = source._root
        if root is None:
            self._root, self._skip, self._kept = source, skip, kept
        elif source._kept > skip:
            self._root, self._skip = root, source._skip + skip
            self._kept = min(kept, source._kept - skip)
        if stable and source._stable:
            self._stable = True
        return self

    def __add__(self, other: tuple[Any, ...]) -> "Items[Any]":
        grown: Items[Any] = Items(tuple.__add__(self, tuple(other)))
        if self.omitted:
            grown.omitted = self.omitted
        return grown._derived_from(self, 0, len(self), all(map(trusted, other)))

    @overload
    def __getitem__(self, index: SupportsIndex, /) -> T: ...
    @overload
    def __getitem__(self, index: slice, /) -> "Items[T]": ...
    def __getitem__(self, index: SupportsIndex | slice, /) -> "T | Items[T]":
        if not isinstance(index, slice):
            return tuple.__getitem__(self, index)
        part: Items[T] = Items(tuple.__getitem__(self, index))
        start, _, step = index.indices(len(self))
        return part._derived_from(self, start, len(part), True) if step == 1 else part

    def after(self, omitted: int) -> "Items[T]":
        """These items, placed after `omitted` earlier ones that were not loaded."""
        if self.omitted == omitted:
            return self
        moved: Items[T] = Items(self)
        moved.omitted = omitted
        moved._root, moved._skip, moved._kept, moved._stable = self._root, self._skip, self._kept, self._stable
        if self._root is None:
            moved._root, moved._kept = self, len(self)
        return moved

    def __reduce__(self) -> "tuple[Callable[[tuple[T, ...], int], Items[T]], tuple[tuple[T, ...], int]]":
        return _unpickled, (tuple(self), self.omitted)

    def __copy__(self) -> "Items[T]":
        return self


def _unpickled(values: tuple[T, ...], omitted: int) -> Items[T]:
    return Items(values).after(omitted)


def as_items(values: Iterable[T]) -> Items[T]:
    """Return an `Items` unchanged, and make one of any other iterable. It validates a state's tuple fields."""
    return values if isinstance(values, Items) else Items(values)


ThreadKey = tuple[str, str, str]
"""Identity of the store, thread id, namespace."""


_MAX_THREADS = 4
"""How many threads a lineage remembers. A state is seldom kept in more at once, and each trace may be large."""


class Lineage:
    """The checkpoints that a state was last loaded from or saved as, by thread.

    Immutable: a save puts a new one on the state, so that states derived earlier keep theirs. Two lineages
    are always equal, because where a state was saved is no part of its value.
    """

    __slots__ = ("_known",)

    def __init__(self, known: Mapping[ThreadKey, Any] = MappingProxyType({})) -> None:
        self._known = known

    def get(self, key: ThreadKey) -> Any | None:
        """The trace that the store left on the last load from this thread, or save to it; None if there was neither."""
        return self._known.get(key)

    def items(self) -> Iterable[tuple[ThreadKey, Any]]:
        """The traces of all threads that are remembered."""
        return self._known.items()

    def after(self, key: ThreadKey, trace: object) -> "Lineage":
        """A copy of this lineage in which `trace` belongs to the thread `key`. It forgets the oldest threads."""
        known = {other: value for other, value in self._known.items() if other != key}
        known[key] = trace
        while len(known) > _MAX_THREADS:
            del known[next(iter(known))]
        return Lineage(MappingProxyType(known))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lineage)

    def __hash__(self) -> int:
        return 0

    def __copy__(self) -> "Lineage":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "Lineage":
        return self

    def __reduce__(self) -> "tuple[type[Lineage], tuple[()]]":
        # A lineage means nothing in another process, which opens its stores anew.
        return Lineage, ()


class Remembering(Frozen):
    """A model that remembers the checkpoints it was saved as, and passes that on to whatever is derived from it.

    The methods are private because a state may have fields of any name.
    """

    _lineage: Lineage = PrivateAttr(default_factory=Lineage)

    def _kept_at(self, key: ThreadKey) -> Any | None:
        """The trace that the store left when this was last loaded from the thread, or saved to it."""
        return self._private()["_lineage"].get(key)

    def _keep_at(self, key: ThreadKey, trace: object) -> None:
        private = self._private()
        private["_lineage"] = private["_lineage"].after(key, trace)

    def _private(self) -> dict[str, Any]:
        """The dict in which pydantic keeps `_lineage`. Every save needs it, and pydantic's own way there is slow."""
        private = self.__pydantic_private__
        assert private is not None
        return private
