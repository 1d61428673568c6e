"""The commands on the pages work: each is run as the page shows it, or is listed here with the reason why not."""

import io
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from commands import Ended, commands_in
from live import started
from local_federation import Enrolment
from pages import BLOCK, ROOT, Command, commands
from steward import Site

from dpspca.cli.app import whole_program
from dpspca.cli.commands.evidence import COLLECT
from dpspca.common.names import Role

COMMANDS: Final = list(commands())
NOT_RUN: Final = {
    "dpspca --install-completion": "it changes the start-up file of the shell",
    "dpspca health --config /party/settings.toml": "it runs in containers: see tests/compose",
    "dpspca dashboard --config FILE": "it runs until it is interrupted: see test_dashboard.py",
    **dict.fromkeys(
        (
            "dpspca study init study.toml",
            "dpspca join coordinator-hub.invitation",
            "dpspca join provider-north.invitation",
            "dpspca join provider-south.invitation",
            "dpspca join provider-east.invitation",
            "dpspca join analyst-ada.invitation",
            "dpspca join provider-north.invitation --data-set cohort=rows.csv",
            "dpspca join provider-north.invitation --folder joined",
            "dpspca study sign",
            "dpspca study sign --exchange mailbox",
            "dpspca study revoke provider/north",
            "dpspca study invite provider/north",
            "dpspca identity renew --config provider.toml",
            "dpspca study sign --yes",
            "dpspca study init study.toml --ca-request authority.csr",
            "dpspca study certify authority.crt --root ca.pem",
        ),
        "one party waits for another: see test_enrolment.py and tests/unit/cli/test_enrolment.py",
    ),
    "dpspca approval show JOB --config provider.toml": "it needs a job that waits: see test_approval_commands.py",
    "dpspca approval approve JOB --config provider.toml --person maria": "the same",
    "dpspca approval reject JOB --config provider.toml --person maria --reason TEXT": "the same",
    **dict.fromkeys(
        (
            "dpspca model project MODEL panel --out pcs.eigenvec",
            "dpspca model project MODEL panel --phenotypes traits.txt --out with-pcs.txt",
            "dpspca model project MODEL ROWS --out warehouse.postgresql --table results.pcs",
            "dpspca model project MODEL ROWS --out DATABASE --table NAME",
            "dpspca model export MODEL --format plink2 --alleles reference.bim --out panel",
            "dpspca model export MODEL --format plink2 --alleles FILE --out PREFIX",
        ),
        "it needs genotypes or a database: see tests/unit/cli/test_model_files.py",
    ),
}
TUTORIAL: Final = "docs/tutorial.md"
CLINICAL: Final = "docs/clinical.md"
"""Its commands are those of examples/clinical.py, which test_examples.py runs."""
GENETICS: Final = "docs/genetics.md"
"""Its commands are those of examples/genetics.py and of a federation, which test_examples.py runs."""
AUDIT: Final = "docs/audit.md"
DICTIONARY: Final = "docs/dictionary.md"
SAMPLES: Final = ROOT / "deploy" / "samples"
COLUMNS: Final = 40
"""The number of columns in the sample job."""
RUNS: Final = ("--runs", "2")


def id_of(command: Command) -> str:
    return f"{command.page}: {command}"[:80]


# --- Every command exists ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS, ids=id_of)
def test_a_command_on_a_page_exists_and_has_the_flags_shown(command: Command) -> None:
    found, words = find(command)
    flags = {spelled for parameter in found.params for spelled in [*parameter.opts, *parameter.secondary_opts]}
    used = {word.split("=")[0] for word in words if word.startswith("--")}
    assert used <= flags | {"--help"}


def find(command: Command) -> tuple[Any, list[str]]:
    """Return the command as typer knows it, and the words after its name."""
    found, words = whole_program(), list(command.words)
    while hasattr(found, "commands") and words and not words[0].startswith("-"):
        if words[0] == "JOB":  # in the place of a command: `dpspca evidence JOB`
            return found.commands[COLLECT], words
        found = found.commands[words.pop(0)]
    return found, words


def test_the_list_of_commands_that_are_not_run_holds_only_what_pages_show() -> None:
    assert set(NOT_RUN) <= set(map(str, COMMANDS))


# --- Every command runs -----------------------------------------------------------------------------------------------


def is_run(command: Command) -> bool:
    """Whether a command is to be run. Within a sentence, a command without arguments is only named."""
    return (command.in_block or bool(find(command)[1])) and str(command) not in NOT_RUN


RUN: Final = list(filter(is_run, COMMANDS))
OTHER_PAGES: Final = sorted({command.page for command in RUN} - {TUTORIAL, AUDIT, DICTIONARY, CLINICAL, GENETICS})


@dataclass(frozen=True)
class Federation:
    """A running federation with the files that pages name."""

    folder: Path
    daemons: list[tuple[str, ...]]
    """The commands that started its daemons."""


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """Run a coordinator and the providers north and south, with the samples as settings, policy and job."""
    folder = tmp_path_factory.mktemp("town")
    enrolment = Enrolment.create(folder)
    for role, name in ((Role.COORDINATOR, "hub"), (Role.PROVIDER, "north"), (Role.PROVIDER, "south")):
        enrolment.identity(role, name)
    enrolment.identity(Role.ANALYST, "ada")
    (folder / "revoked.pem").write_bytes(enrolment.authority.revocation_list())
    for name in ("job.toml", "policy.toml"):
        (folder / name).write_bytes((SAMPLES / name).read_bytes())
    names = ",".join(f"gene {number}" for number in range(COLUMNS))
    rows = np.random.default_rng(0).standard_normal((2000, COLUMNS)) * np.r_[5, 4, np.ones(COLUMNS - 2)]
    for name, part in zip(("north", "south"), np.array_split(rows, 2), strict=True):
        np.savetxt(folder / f"{name}.csv", part, "%.3f", delimiter=",", header=names, comments="")

    hub, north, south = (program(each) for each in ("coordinator", "provider", "provider"))
    daemons = [hub, north, (*south[:-1], "south.toml")]
    settings("coordinator", folder / "coordinator.toml", "coordinator-hub", ("0.0.0.0:7443", "127.0.0.1:0"))
    with ExitStack() as stack:
        address = stack.enter_context(started(folder, *hub, until="listening")).split()[-1]
        dial = partial(settings, more=("coordinator.example:7443", address))
        dial("analyst", folder / "ada.toml", "analyst-ada")
        for file, name in (("provider.toml", "north"), ("south.toml", "south")):
            dial("provider", folder / file, f"provider-{name}", rows=name)
        for words in daemons[1:]:
            stack.enter_context(started(folder, *words, until="Connected"))
        yield Federation(folder, daemons)


def program(role: str) -> tuple[str, ...]:
    """Return the command that starts a daemon, as the page shows it."""
    (command,) = {each.words for each in RUN if each.page in OTHER_PAGES and each.words[:2] == (role, "start")}
    return command


def settings(sample: str, file: Path, identity: str, more: tuple[str, str], rows: str = "") -> None:
    """Write the sample of a settings file with the identity, the address and the rows of a party."""
    text = (SAMPLES / f"{sample}.toml").read_text(encoding="utf-8").replace(*more)
    text = text.replace('identity = "identity"', f'identity = "{identity}"').replace("rows.csv", f"{rows}.csv")
    file.write_text(text.replace('# ledger = "ledger/', f'ledger = "{rows}-ledger/'), encoding="utf-8")


Here = Callable[[Path], Callable[..., Ended]]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Here:
    """Return a function that runs commands in a folder. They are answered with yes."""

    def in_folder(folder: Path) -> Callable[..., Ended]:
        monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
        return commands_in(folder, monkeypatch, capfd)

    return in_folder


@pytest.mark.parametrize("page", OTHER_PAGES)
def test_the_commands_of_a_page_run_one_after_the_other(
    page: str, federation: Federation, here: Here, tmp_path: Path
) -> None:
    for command in (each for each in RUN if each.page == page):
        if command.words[1:2] == ("start",):
            assert command.words in federation.daemons
            continue
        folder = folder_for(command, federation, tmp_path)
        ended = here(folder)(*filled(command, here(folder)))
        assert ended.code == 0, f"{command}: {ended.err}{ended.out}"
        if command.output:
            (tmp_path / command.output).write_text(ended.out, encoding="utf-8")


def folder_for(command: Command, federation: Federation, tmp_path: Path) -> Path:
    """Return the folder in which a command has what it needs."""
    match command.words[:2]:
        case ("ledger", "end-quarantine" | "vouch" as name):
            return stopped_provider(tmp_path / f"{name}-{len([*tmp_path.iterdir()])}", name)
    return federation.folder


def stopped_provider(folder: Path, command: str) -> Path:
    """Make a provider whose ledger is in quarantine, or holds a job of version 0.1.0 on a matrix."""
    folder.mkdir()
    site = Site.made(folder)
    (folder / "job.toml").write_bytes((SAMPLES / "job.toml").read_bytes())
    of_matrix = {"data_set": "ratings", "unit": "entry"} if command == "vouch" else {}
    with site.running() as ledger:
        site.answer(ledger, "a" * 64, **of_matrix)
        ledger.close("a" * 64, "done")
    if command == "end-quarantine":
        (folder / "identity" / "ledger-head").unlink()
    return folder


def filled(command: Command, here: Callable[..., Ended]) -> Iterator[str]:
    """Yield a command's words, with values for those in capitals."""
    before = ""
    for word in command.words:
        match word:
            case "FINGERPRINT":
                yield here("study", "show", "--json").facts["authority"]
            case "JOB":
                yield here("jobs", "list", "--config", "ada.toml", "--json").facts["jobs"][-1]["job"]
            case "FILE":
                yield f"result-{RUN.index(command)}.csv" if before == "--out" else "provider.toml"
            case "PROGRAM":
                yield "provider"
            case "MODEL":
                yield "model.dpspca"
            case "ROWS":
                yield "north.csv"
            case "FOLDER":
                yield "drawn"
            case _:
                yield word
        before = word


def test_the_page_about_dictionaries_runs_on_the_files_that_it_shows(here: Here, tmp_path: Path) -> None:
    """The block of a file begins with its name. tests/e2e/jobs/test_dictionaries.py runs such a job in a federation."""
    text = (ROOT / DICTIONARY).read_text(encoding="utf-8")
    for language, block, _ in BLOCK.findall(text):
        name, _, content = block.removeprefix("# ").partition("\n")
        if language in {"toml", "text"} and Path(name).suffix:
            (tmp_path / name).write_text(content, encoding="utf-8")
    for command in (each for each in RUN if each.page == DICTIONARY and each.words[0] != "run"):
        ended = here(tmp_path)(*command.words)
        assert ended.code == ("west.csv" in command.words), f"{command}: {ended.err}{ended.out}"
        said = [line[2:] for line in text.splitlines() if line.startswith("> ")]
        assert " ".join(said) in " ".join(ended.out.split()) or "west.csv" not in command.words
        if command.output:
            (tmp_path / command.output).write_text(ended.out, encoding="utf-8")
    for language, block, _ in BLOCK.findall(text):
        if language == "python":
            exec(compile(block, DICTIONARY, "exec"), {})  # noqa: S102  # our own text


@pytest.mark.slow
def test_the_commands_that_audit_run_with_few_runs(federation: Federation, here: Here) -> None:
    for command in (each for each in RUN if each.page == AUDIT):
        ended = here(federation.folder)(*command.words, *RUNS)
        assert ended.code == 0, f"{command}: {ended.err}{ended.out}"


@pytest.mark.nightly
def test_the_commands_that_audit_run_as_they_are_shown(federation: Federation, here: Here) -> None:
    for command in (each for each in RUN if each.page == AUDIT):
        ended = here(federation.folder)(*command.words)
        assert ended.code == 0, f"{command}: {ended.err}{ended.out}"


@pytest.mark.slow
def test_the_tutorial_runs_from_its_first_command_to_its_last(here: Here, tmp_path: Path) -> None:
    """In one folder, one block after the other. `pip` is left to the tests of the wheel."""
    names: dict[str, object] = {}
    run = here(tmp_path)
    for language, block, _ in BLOCK.findall((ROOT / TUTORIAL).read_text(encoding="utf-8")):
        if language == "python":
            exec(compile(block, "tutorial.md", "exec"), names)  # noqa: S102  # our own text
        for line in block.splitlines() if language == "sh" else ():
            _, *words = shlex.split(line)
            words, out = (words[:-2], tmp_path / words[-1]) if ">" in words else (words, None)
            ended = run(*words)
            assert ended.code == 0, ended.err
            if out:
                out.write_text(ended.out, encoding="utf-8")
    made = {path.name for path in tmp_path.iterdir()}
    assert {"demo", "job.json", "policy.toml", "model.dpspca", "loadings.csv"} <= made
