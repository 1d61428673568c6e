"""Empty text is refused as a name or a path, because it would count as left out, or as the current folder."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import Ended, commands_in
from facts import facts, names_facts

from dpspca.cli.app import app
from dpspca.cli.arguments.empty_values import command_with_checks
from dpspca.client.federation import AsyncFederation, settings
from dpspca.common.errors import DpspcaError, InvalidParameterError
from dpspca.common.job import Schema
from dpspca.common.storage.settings import (
    AnalystSettings,
    AnySettings,
    CoordinatorSettings,
    ProviderSettings,
    faults,
    read_toml,
)
from dpspca.provider.policy.rules import faults as faults_of_policy

SAMPLES = Path(__file__).parents[4] / "deploy" / "samples"
BLANKS = ("", "  ", "\t")


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., Ended]:
    return commands_in(tmp_path, monkeypatch, capfd)


def parameters(command: Any) -> Iterator[Any]:
    yield from command.params
    for part in getattr(command, "commands", {}).values():
        yield from parameters(part)


@pytest.mark.parametrize("blank", BLANKS)
def test_every_flag_and_argument_refuses_empty_text(blank: str) -> None:
    found = list(parameters(command_with_checks(app)))
    assert len(found) > 100
    for parameter in found:
        for given in (blank, (blank,), ("a", blank)):
            with pytest.raises(InvalidParameterError, match=facts(repr(blank))):
                parameter.process_value(None, given)


def test_run_refuses_an_empty_data_set_name(here: Callable[..., Ended]) -> None:
    message = here("run", "--config", "ada.toml", "--data-set", "").error_line
    assert re.search(facts("--data-set", "''"), message)


@pytest.mark.parametrize("blank", BLANKS)
@pytest.mark.parametrize(
    ("kind", "name"),
    [(CoordinatorSettings, "coordinator"), (ProviderSettings, "provider"), (AnalystSettings, "analyst")],
)
def test_every_key_of_settings_refuses_empty_text(
    kind: type[AnySettings], name: str, blank: str, tmp_path: Path
) -> None:
    good = read_toml(SAMPLES / f"{name}.toml")
    for key, value in good.items():
        if isinstance(value, str):
            output = " ".join(map(str, faults(kind, tmp_path / "s.toml", good | {key: blank})))
            assert names_facts(output, "s.toml", key, repr(blank))
    for key in ("data_sets", "arriving", "persons"):
        if kind is ProviderSettings:
            for table, named in (({"cohort": blank}, f"{key}.cohort"), ({blank: "rows.csv"}, 63)):
                output = " ".join(map(str, faults(kind, tmp_path / "s.toml", good | {key: table})))
                assert names_facts(output, "s.toml", key, repr(blank), named)


@pytest.mark.parametrize("blank", BLANKS)
@pytest.mark.parametrize("key", ["data_set", "providers"])
def test_a_job_file_refuses_empty_text(key: str, blank: str, here: Callable[..., Ended], tmp_path: Path) -> None:
    text = (SAMPLES / "job.toml").read_text(encoding="utf-8")
    kept = [line for line in text.splitlines() if not line.startswith(key)]
    given = [blank] if key == "providers" else blank
    (tmp_path / "job.toml").write_text("\n".join([f"{key} = {given!r}", *kept]), encoding="utf-8")
    message = here("plan", "job.toml")
    assert message.code == 2
    assert "job.toml: " in message.err


@pytest.mark.parametrize("blank", BLANKS)
def test_a_policy_refuses_empty_text(blank: str) -> None:
    text = (SAMPLES / "policy.toml").read_text(encoding="utf-8")
    for key in ("analysts", "columns"):
        kept = [line for line in text.splitlines() if not line.startswith(f"{key} =")]
        head = next(number for number, line in enumerate(kept) if line.startswith("[data_sets."))
        changed = "\n".join([*kept[: head + 1], f"{key} = [{json.dumps(blank)}]", *kept[head + 1 :]])
        assert list(faults_of_policy(changed))


@pytest.mark.parametrize("blank", BLANKS)
def test_column_names_refuse_empty_text(blank: str) -> None:
    with pytest.raises(DpspcaError, match=facts("Column 2 of 3")):
        Schema.of(["a", blank, "c"])
    with pytest.raises(DpspcaError, match=facts("Column 2 of 2")):
        Schema(2, ("a", blank)).require_named()


async def refuses(blank: str) -> None:
    """Call a method with an empty name, without a connection."""
    federation = object.__new__(AsyncFederation)
    with pytest.raises(DpspcaError, match=facts(repr(blank))):
        await federation.job(blank)


@pytest.mark.parametrize("blank", BLANKS)
def test_arguments_of_python_functions_refuse_empty_text(blank: str, tmp_path: Path) -> None:
    asyncio.run(refuses(blank))
    for given in ((blank, None), (blank, tmp_path), ("127.0.0.1:1", blank)):
        with pytest.raises(DpspcaError, match=facts(repr(blank))):
            settings(*given)
