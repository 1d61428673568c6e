"""From plain values to values of a declared type. Each type is looked at once, and becomes one function."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import StrEnum
from functools import cache, partial
from itertools import islice
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Final, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from dpspca.common.choices import choices
from dpspca.common.errors import DpspcaError, InvalidInputError
from dpspca.common.names import shortened

from .faults import MOST_FAULTS, Fault, Source, WrongInput
from .rules import By, Derived, Rule

Of = TypeVar("Of")
Decoder: TypeAlias = Callable[[Any, Source], Any]

_LARGEST: Final = 10**400
"""Of an integer: more than any amount in a ledger."""
_LEAST: Final = -_LARGEST
_HERE: Final = Source()


def decode(kind: Callable[..., Of], raw: object, source: Source = _HERE, **known: Any) -> Of:  # noqa: ANN401  # fields
    """Make a value of a declared type, or raise an ``InvalidInputError`` that lists everything that is wrong.

    ``known`` are fields of a dataclass that the raw table does not have, because they follow from elsewhere.
    """
    try:
        if known:
            return _table(kind, frozenset(known)).read(raw, source, known)  # type: ignore[no-any-return]
        made: Of = decoder_of(kind)(raw, source)
    except WrongInput as wrong:
        raise wrong.error(source) from None
    return made


def faults_of(work: Callable[[], object]) -> Sequence[DpspcaError]:
    """Return the faults of raw input that some work reads."""
    try:
        work()
    except InvalidInputError as problem:
        return problem.faults
    except DpspcaError as problem:
        return [problem]
    return []


def read_part(kind: Any, raw: object, source: Source) -> Any:  # noqa: ANN401  # a type, and what it says
    """Read a value inside of a function that reads another (``By``): errors are reported with the other's keys."""
    return decoder_of(kind)(raw, source)


def keys_of(kind: Any) -> frozenset[str]:  # noqa: ANN401  # a dataclass
    """Name the keys that a table of this class may have."""
    hints = get_type_hints(kind, include_extras=True)
    return frozenset(
        each.name for each in fields(kind) if each.init and not any(map(_is_derived, get_args(hints[each.name])))
    )


def _is_derived(mark: object) -> bool:
    return isinstance(mark, Derived)


def is_whole(value: object) -> bool:
    """Tell whether this is a whole number that is kept as it is."""
    return type(value) is int and _LEAST < value < _LARGEST


@cache
def decoder_of(hint: Any) -> Decoder:  # noqa: ANN401, PLR0911  # a type as it is written down; one kind a line
    """Return the decoder of values of this type."""
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _annotated(parts[0], parts[1:])
    if origin in {Union, UnionType}:
        return _union(parts)
    if origin is not None and issubclass(origin, Mapping):
        return partial(_mapping, decoder_of(parts[0]), decoder_of(parts[1]))
    if origin is tuple and parts[-1] is not Ellipsis:
        return partial(_fixed, [decoder_of(part) for part in parts])
    if origin is not None and issubclass(origin, Sequence):
        return partial(_listed, decoder_of(parts[0]), tuple if origin is tuple else list)
    if is_dataclass(hint):
        return _table(hint, frozenset()).read  # type: ignore[arg-type]  # a class can be hashed
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return partial(_member, {str(each): each for each in hint})
    raise TypeError(hint)


# --- Single values ----------------------------------------------------------------------------------------------------


def _text(value: Any, source: Source) -> str:  # noqa: ANN401  # whatever was written, here and below
    if isinstance(value, str) and value.isascii() and len(value) <= source.longest_text:
        return value
    if not isinstance(value, str):
        raise WrongInput.of(value, "Give text in quotes.")
    if len(value) > source.longest_text:
        raise WrongInput([Fault((), f" has {len(value)} characters.", f"Use at most {source.longest_text}.")])
    if any("\ud800" <= letter <= "\udfff" for letter in value):
        raise WrongInput([Fault((), f" is {shortened(value)}.", "Use characters that can be written as UTF-8.")])
    return value


def _whole(value: Any, _source: Source) -> int:  # noqa: ANN401
    if type(value) is int and _LEAST < value < _LARGEST:
        return value
    raise WrongInput.of(value, "Give a whole number.")


def _number(value: Any, _source: Source) -> float:  # noqa: ANN401
    if type(value) is float and math.isfinite(value):
        return value
    try:
        return float(_whole(value, _source))
    except (WrongInput, OverflowError):
        raise WrongInput.of(value, "Give a finite number, without quotes.") from None


def _flag(value: Any, _source: Source) -> bool:  # noqa: ANN401
    if type(value) is not bool:
        raise WrongInput.of(value, "Give true or false, without quotes.")
    return value


def _member(known: Mapping[str, StrEnum], value: Any, _source: Source) -> StrEnum:  # noqa: ANN401
    if not isinstance(value, str) or value not in known:
        raise WrongInput.of(value, choices(value, known))
    return known[value]


_PLAIN: Final[Mapping[Any, Decoder]] = {
    str: _text,
    int: _whole,
    float: _number,
    bool: _flag,
    Any: lambda value, _source: value,
}


# --- Rules and unions -------------------------------------------------------------------------------------------------


def _annotated(hint: Any, marks: Sequence[object]) -> Decoder:  # noqa: ANN401  # a type
    by = next((mark for mark in marks if isinstance(mark, By)), None)
    rules = [mark for mark in marks if isinstance(mark, Rule)]
    inner = decoder_of(hint if by is None else by.of)

    def read(value: Any, source: Source) -> Any:  # noqa: ANN401
        try:
            made = inner(value, source)
            made = made if by is None else by.read(made, source)
        except DpspcaError as problem:
            raise _wrong(problem) from None
        except WrongInput as wrong:
            if not rules or not wrong.is_kind:
                raise
            raise WrongInput.of(value, rules[0].remedy(value)) from None
        for rule in rules:
            if not rule.holds(made):
                raise WrongInput.of(value, rule.remedy(value))
        return made

    return read


def _wrong(problem: DpspcaError) -> WrongInput:
    """Say of an error of this package that raw input caused it."""
    found = problem.faults if isinstance(problem, InvalidInputError) else [problem]
    return WrongInput([Fault((), f": {each.what}", each.remedy) for each in found])


def _union(hints: Sequence[Any]) -> Decoder:
    """Read a value as the first type that fits it. If none fits, report what is wrong for the closest type."""
    readers = [decoder_of(hint) for hint in sorted(hints, key=_rank) if hint is not NoneType]
    is_optional = NoneType in hints

    def read(value: Any, source: Source) -> Any:  # noqa: ANN401
        if value is None and is_optional:
            return None
        found: list[WrongInput] = []
        for reader in readers:
            try:
                return reader(value, source)
            except WrongInput as wrong:
                found.append(wrong)
        raise max(found, key=lambda wrong: any(fault.path for fault in wrong.faults))

    return read


def _rank(hint: Any) -> int:  # noqa: ANN401  # a type
    """Whole numbers come before numbers, so that they stay whole. Unions have no order of their own."""
    kinds = (bool, int, float)
    return kinds.index(hint) if hint in kinds else len(kinds)


# --- Lists and tables -------------------------------------------------------------------------------------------------


def _each(pairs: Iterator[tuple[str | int, Any, Decoder]], source: Source) -> list[Any]:
    """Read values that are under keys, and collect what is wrong with them."""
    made: list[Any] = []
    wrong: list[Fault] = []
    for key, value, reader in pairs:
        try:
            made.append(reader(value, source))
        except WrongInput as problem:
            wrong += problem.under(key)
            if len(wrong) >= MOST_FAULTS:
                break
    if wrong:
        raise WrongInput(wrong)
    return made


def _listed(entry: Decoder, kind: Callable[[list[Any]], Any], value: Any, source: Source) -> Any:  # noqa: ANN401
    if not isinstance(value, list):
        raise WrongInput.of(value, "Give a list, in brackets.")
    try:
        return kind([entry(each, source) for each in value])
    except WrongInput:  # a second look says everything that is wrong
        return kind(_each(((place, each, entry) for place, each in enumerate(value)), source))


def _fixed(entries: Sequence[Decoder], value: Any, source: Source) -> tuple[Any, ...]:  # noqa: ANN401
    if not isinstance(value, list) or len(value) != len(entries):
        raise WrongInput.of(value, f"Give a list of {len(entries)} values, in brackets.")
    return tuple(_each(((place, *pair) for place, pair in enumerate(zip(value, entries, strict=True))), source))


def _mapping(key: Decoder, entry: Decoder, value: Any, source: Source) -> dict[Any, Any]:  # noqa: ANN401
    if not isinstance(value, dict):
        raise WrongInput.of(value, "Give a table: a value for each name.")
    names = _each(((name, name, key) for name in value), source)
    return dict(zip(names, _each(((name, each, entry) for name, each in value.items()), source), strict=True))


class _Table:
    """Makes a dataclass of a table with its fields, other than those that are known from elsewhere."""

    def __init__(self, kind: Any, known: frozenset[str]) -> None:  # noqa: ANN401  # a dataclass
        hints = get_type_hints(kind, include_extras=True)
        own = [each for each in fields(kind) if each.name in keys_of(kind) - known]
        self._kind = kind
        self._readers = {each.name: decoder_of(hints[each.name]) for each in own}
        self._needed = {each.name for each in own if each.default is each.default_factory is MISSING}
        self._own = own
        self._inner: Mapping[object, str] = {  # some write a table's keys without its name
            key: f"Write this under {each.name!r}."
            for each in own
            for part in _kinds(hints[each.name])
            if is_dataclass(part)
            for key in keys_of(part) - self._readers.keys()
        }
        self._also_needed = getattr(kind, "also_needed", None)
        self._cross_checks = getattr(kind, "cross_checks", None)
        self._is_plain = self._also_needed is self._cross_checks is None and all(map(_is_plain, hints.values()))

    def read(self, value: Any, source: Source, others: Mapping[str, Any] = MappingProxyType({})) -> Any:  # noqa: ANN401
        """Make a value, or say everything that is wrong."""
        if type(value) is not dict:
            raise WrongInput.of(value, f"Give a table with the keys {', '.join(self._readers)}.")
        if self._is_plain and not others and value.keys() == self._readers.keys():
            try:
                return self._kind(**{key: self._readers[key](each, source) for key, each in value.items()})
            except (WrongInput, DpspcaError):
                pass  # a second look says everything that is wrong
        return self._read_all(value, source, others)

    def _read_all(self, value: Mapping[Any, Any], source: Source, others: Mapping[str, Any]) -> Any:  # noqa: ANN401
        readers, made = self._readers, {**others}
        wrong: list[Fault] = []
        unknown: list[object] = []
        for key, each in value.items():
            reader = readers.get(key)
            if reader is None:
                unknown.append(key)
                continue
            try:
                made[key] = reader(each, source)
            except WrongInput as problem:
                wrong += problem.under(key)
        if unknown:
            wrong += self._unknown(unknown, source)
        needed = self._needed.union(self._also_needed(value)) if self._also_needed else self._needed
        if len(made) < len(readers) + len(others) and not needed.issubset(value):
            missing = sorted(needed - value.keys())
            add = "Add it." if len(missing) == 1 else "Add them."
            wrong.append(Fault((), f" lacks {', '.join(missing)}.", f"{add} {source.sample}".strip()))
        if self._cross_checks:
            defaults = {each.name: _default(each) for each in self._own if each.name not in needed | value.keys()}
            found = islice(self._cross_checks(defaults | made), MOST_FAULTS)
            wrong += (Fault((), f": {what}", remedy) for what, remedy in found)
        if wrong:
            raise WrongInput(wrong)
        try:
            return self._kind(**made)
        except DpspcaError as problem:
            raise _wrong(problem) from None

    def _unknown(self, keys: Sequence[object], source: Source) -> list[Fault]:
        """Say which keys are unknown, and once for those with the same remedy."""
        by_remedy: dict[str, list[str]] = {}
        for key in keys[:MOST_FAULTS]:
            remedy = self._inner.get(key) or f"{choices(key, self._readers)} {source.sample}".strip()
            by_remedy.setdefault(remedy, []).append(shortened(key))
        return [
            Fault((), f" has {'an unknown key' if len(named) == 1 else 'unknown keys'} {', '.join(named)}.", remedy)
            for remedy, named in by_remedy.items()
        ]


def _is_plain(hint: Any) -> bool:  # noqa: ANN401  # a type
    """Tell whether values are single, or lists of such values: these may be read twice, to find what is wrong."""
    return hint in _PLAIN or (get_origin(hint) in {list, tuple, Sequence} and all(map(_is_plain, get_args(hint))))


def _kinds(hint: Any) -> tuple[Any, ...]:  # noqa: ANN401  # a type
    """Return the types that a value may have."""
    return get_args(hint) if get_origin(hint) in {Annotated, Union, UnionType} else (hint,)


@cache
def _table(kind: Any, known: frozenset[str]) -> _Table:  # noqa: ANN401  # a dataclass
    return _Table(kind, known)


def _default(each: "Field[Any]") -> Any:  # noqa: ANN401  # of any type
    make: Any = each.default_factory
    return make() if each.default is MISSING else each.default
