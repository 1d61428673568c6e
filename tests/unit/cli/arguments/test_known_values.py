"""A value that is none of a few is refused with the flag, the value that was meant, and all of them."""

import json
from collections.abc import Callable
from enum import Enum
from pathlib import Path

import pytest
from commands import Ended, commands_in
from facts import facts, names_facts

from dpspca.cli.app import whole_program
from dpspca.client.jobs import JobFile
from dpspca.common.errors import InvalidParameterError
from dpspca.common.job import PRIVATE_BOUND

JOB = ["plan", "--dimension", "20", "--components", "2", "--epsilon", "1", "--delta", "1e-6"]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., Ended]:
    return commands_in(tmp_path, monkeypatch, capfd)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ([*JOB, "--unit", "row-replace"], ("--unit", "'row-replace'", "'row-replace-one'", "spectral")),
        ([*JOB, "--centering", "privat"], ("--centering", "'privat'", "'private'", "pairs")),
        (["config", "sample", "polcy"], ("sample", "'polcy'", "'policy'", "study")),
        (["provider", "start", "--log-level", "inof"], ("--log-level", "'inof'", "'info'", "warning")),
    ],
)
def test_a_misspelt_choice_is_answered_with_the_one_meant(
    words: list[str], named: tuple[str, ...], here: Callable[..., Ended]
) -> None:
    ended = here(*words)
    assert ended.code == 2
    assert names_facts(ended.error_line, "Unknown", *named)
    assert "Value error" not in ended.err


def test_every_parameter_with_choices_refuses_others() -> None:
    def parameters(command: object) -> list[object]:
        own = list(getattr(command, "params", ()))
        return own + [each for part in getattr(command, "commands", {}).values() for each in parameters(part)]

    checked = 0
    for parameter in parameters(whole_program()):
        kind = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
        if isinstance(kind, type) and issubclass(kind, Enum):
            with pytest.raises(InvalidParameterError):
                parameter.process_value(None, "nonsense")  # type: ignore[attr-defined]
            checked += 1
    assert checked >= 16


def test_without_a_norm_bound_auto_finds_one(here: Callable[..., Ended]) -> None:
    without, private = (
        here(*JOB, "--unit", "row-replace-one", *more, "--json").facts for more in ([], ["--norm-bound=private"])
    )
    assert without == private


def test_where_no_bound_is_found_the_error_says_what_could(here: Callable[..., Ended]) -> None:
    others = here(*JOB, "--unit", "row-replace-one", "--method", "dps-pca", "--sparsity", "5").error_line
    assert names_facts(others, "--norm-bound", "--norm-bound private", "--method auto")
    matrix = here(*JOB, "--unit", "entry", "--method", "noisy-power", "--rounds", "2").error_line
    assert names_facts(matrix, "--norm-bound")
    assert "private" not in matrix
    with_auto = here(*JOB).error_line
    assert names_facts(with_auto, "--unit", "--norm-bound private")


def test_more_components_than_columns_name_the_flag(here: Callable[..., Ended]) -> None:
    words = [
        "plan",
        "--dimension",
        "6",
        "--components",
        "9",
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
        "--unit",
        "row-replace-one",
    ]
    assert names_facts(here(*words).error_line, "--components", 9, 6, "columns")


@pytest.mark.parametrize("method", [None, "auto"])
def test_a_job_file_may_leave_the_norm_bound_to_auto(method: str | None, tmp_path: Path) -> None:
    job = {
        "schema": {"dimension": 20},
        "components": 2,
        "unit": "row-replace-one",
        "budget": {"epsilon": 1, "delta": 1e-6},
    }
    path = tmp_path / "job.json"
    path.write_text(json.dumps(job | ({} if method is None else {"method": method})), encoding="utf-8")
    assert JobFile.read(path).spec.norm_bound == PRIVATE_BOUND
    path.write_text(json.dumps(job | {"method": "dps-pca", "options": {"sparsity": 4}}), encoding="utf-8")
    with pytest.raises(InvalidParameterError, match=facts("norm_bound")):
        JobFile.read(path)


def test_a_file_that_is_no_evidence_is_answered_with_a_next_step(here: Callable[..., Ended], tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text("components = 2\n", encoding="utf-8")
    ended = here("evidence", "verify", "job.toml")
    assert ended.code == 1
    assert names_facts(ended.out, "FAILED", "`dpspca evidence JOB`")
