"""Reads the values in a policy's tables: a reader takes a key and what TOML holds, or says what is wrong with it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, Final, TypeAlias, TypeVar

from dpspca.common.checks import check, check_whole
from dpspca.common.errors import DpspcaError, InvalidParameterError
from dpspca.common.names import shortened
from dpspca.common.spec import MAX_DIMENSION

SAMPLE: Final = "`dpspca config sample policy` shows what belongs there."

Reader: TypeAlias = Callable[[str, Any], Any]
Of = TypeVar("Of")


def check_table(key: str, value: object) -> None:
    """Refuse what is no table."""
    check(isinstance(value, dict), f"{key} is {shortened(value)}, no table.", SAMPLE)


def check_keys(table: Mapping[str, Any], known: Iterable[str], needed: Iterable[str]) -> None:
    """Refuse keys that are not known, and a table that lacks one."""
    unknown, missing = sorted(set(table) - set(known)), sorted(set(needed) - set(table))
    said = [
        f"{what} {', '.join(keys)}" for what, keys in (("it does not know", unknown), ("it lacks", missing)) if keys
    ]
    check(not said, f"{'; '.join(said)}.", SAMPLE)


def some_of(kind: type[Of], key: str, value: Any) -> Of:  # noqa: ANN401  # whatever TOML holds
    """Make a value of a table that has some of its fields; the others are as by default."""
    check_table(key, value)
    with naming(key):
        check_keys(value, {each.name for each in fields(kind)}, ())  # type: ignore[arg-type]  # a dataclass
        return kind(**value)


def table_of(kind: type[Of], key: str, value: Any) -> Of:  # noqa: ANN401  # whatever TOML holds
    """Make a value of a table that has its fields, all of them and no other."""
    check_table(key, value)
    with naming(key):
        names = {each.name for each in fields(kind)}  # type: ignore[arg-type]  # every such value is a dataclass
        check_keys(value, names, names)
        return kind(**value)


@contextmanager
def naming(where: str) -> Iterator[None]:
    """Say of every error where it is."""
    try:
        yield
    except DpspcaError as problem:
        raise InvalidParameterError(f"{where}: {problem.what}", problem.remedy) from None


def whole(most: int) -> Reader:
    """Read a whole number from 1 on."""
    return lambda key, value: check_whole(key, value, least=1, most=most)


def seconds(most: float) -> Reader:
    """Read a number of seconds from 0 on."""

    def read(key: str, value: object) -> float:
        given = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= most
        check(given, f"{key} is {shortened(value)}.", f"Give a number of seconds between 0 and {most:g}.")
        return float(value)  # type: ignore[arg-type]  # a number, as was checked

    return read


def flag(key: str, value: object) -> bool:
    """Read true or false."""
    check(isinstance(value, bool), f"{key} is {shortened(value)}, neither true nor false.", "Give one of these.")
    return bool(value)


def plain_text(key: str, value: object) -> str:
    """Read text that says something."""
    check(isinstance(value, str), f"{key} lists {shortened(value)}, no text.", "Give names.")
    check(bool(str(value).strip()), f"{key} lists {shortened(value)}, which is empty.", "Give names.")
    return str(value)


def one_of(known: Iterable[str]) -> Reader:
    """Read one of the values that are known."""
    named = {str(each): each for each in known}

    def read(key: str, value: object) -> str:
        given = isinstance(value, str) and value in named
        check(given, f"{key}: {shortened(value)} is not known.", f"Choose among: {', '.join(named)}.")
        return named[str(value)]

    return read


def list_of(entry: Reader) -> Reader:
    """Read a list of at least one entry, each listed once."""

    def read(key: str, value: object) -> tuple[Any, ...]:
        if not isinstance(value, list) or not value:
            raise InvalidParameterError(f"{key} is {shortened(value)}, no list of any.", SAMPLE)
        found = tuple(entry(key, each) for each in value)
        check(len(set(found)) == len(found), f"{key} lists something twice.", "List everything once.")
        return found

    return read


def columns_of(key: str, value: object) -> int | tuple[str, ...]:
    """Read how many columns there may be at most, or which."""
    read = list_of(plain_text) if isinstance(value, list) else whole(MAX_DIMENSION)
    columns: int | tuple[str, ...] = read(key, value)
    return columns
