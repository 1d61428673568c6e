"""Every command documents its exit codes, and every command that prints a result can print it as JSON."""

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import typer

from dpspca.cli.app import app

DAEMONS = {"coordinator start", "provider start"}


def commands(of: typer.Typer, name: str = "") -> Iterator[tuple[str, str | None, Callable[..., Any] | None]]:
    """Yield the name, epilog and function of every command."""
    for each in of.registered_commands:
        yield f"{name} {each.name}".strip(), each.epilog, each.callback
    for group in of.registered_groups:
        assert group.typer_instance is not None
        yield from commands(group.typer_instance, str(group.typer_instance.info.name))


ALL = [pytest.param(*each, id=each[0]) for each in commands(app)]


def test_all_groups_of_commands_are_found() -> None:
    names = {name for name, _, _ in commands(app)}
    assert names >= DAEMONS | {
        "run",
        "jobs watch",
        "study sign",
        "identity renew",
        "join",
        "config check",
        "model show",
    }


@pytest.mark.parametrize(("name", "epilog", "callback"), ALL)
def test_every_command_explains_itself_and_its_exit_codes(name: str, epilog: str, callback: Any) -> None:
    assert epilog.startswith("Exit codes: 0 "), name
    assert inspect.cleandoc(callback.__doc__).endswith("."), name


@pytest.mark.parametrize(("name", "epilog", "callback"), ALL)
def test_every_command_except_daemons_has_json_output(name: str, epilog: str, callback: Any) -> None:
    assert epilog
    assert ("as_json" in inspect.signature(callback).parameters) == (name not in DAEMONS)


@pytest.mark.parametrize(("name", "epilog", "callback"), ALL)
def test_no_help_text_has_square_brackets_that_vanish(name: str, epilog: str, callback: Any) -> None:
    """The terminal's markup takes a word in brackets for a style, and leaves it out."""
    texts = [callback.__doc__, epilog]
    for each in inspect.signature(callback, eval_str=True).parameters.values():
        texts += [getattr(info, "help", None) or "" for info in getattr(each.annotation, "__metadata__", ())]
    assert len(texts) > 2, name
    assert not [each for each in texts if re.search(r"\[[a-z/]", each)], name
