"""`dpspca doctor` and `health` report what is wrong at a provider; doctor also counts unusable rows."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from commands import Ended, commands_in
from facts import a_line_names, names_facts
from ledgers import LIMITS, opening, standing_at
from local_federation import Enrolment, permissive_policy

from dpspca.common.names import Role
from dpspca.common.storage.settings import ProviderSettings, read_settings
from dpspca.provider.data.memory.scratch import ScratchFile
from dpspca.provider.ledger.entries import Head
from dpspca.provider.startup import data_sets_of, open_ledger, scratch_of

SETTINGS = """
coordinator = "127.0.0.1:1"
identity = "provider-north"
revocations = "revoked.pem"
policy = "policy.toml"
ledger = "ledger/ledger.db"
[data_sets]
"""
ROWS = np.random.default_rng(0).standard_normal((5, 3))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    enrolment = Enrolment.create(tmp_path)
    enrolment.identity(Role.PROVIDER, "north")
    (tmp_path / "revoked.pem").write_bytes(enrolment.authority.revocation_list())
    (tmp_path / "policy.toml").write_text(permissive_policy("row-replace-one", "cohort", "labs"))
    write(tmp_path, cohort=ROWS, labs=ROWS + 1)
    return tmp_path


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], folder: Path) -> Callable[..., Ended]:
    return commands_in(folder, monkeypatch, capfd)


def write(folder: Path, **rows: np.ndarray) -> ProviderSettings:
    for name, table in rows.items():
        np.save(folder / f"{name}.npy", table)
    (folder / "north.toml").write_text(SETTINGS + "".join(f'{name} = "{name}.npy"\n' for name in rows))
    return read_settings(ProviderSettings, folder / "north.toml")


def settled(folder: Path) -> None:
    """Create the ledger, as the first start of a daemon does."""
    open_ledger(read_settings(ProviderSettings, folder / "north.toml"), folder / "north.toml").shut()


def health(here: Callable[..., Ended]) -> str:
    """Return what `dpspca health` prints for a provider without a coordinator."""
    message = here("health", "--config", "north.toml")
    assert message.code == 1
    return message.out


def test_health_reports_an_unreadable_policy(folder: Path, here: Callable[..., Ended]) -> None:
    settled(folder)
    assert "olicy" not in health(here)
    whole = (folder / "policy.toml").read_text()
    for broken in ("nonsense", whole.replace("row-replace-one", "row", 1), None):
        (folder / "policy.toml").unlink()
        if broken is not None:
            (folder / "policy.toml").write_text(broken)
        assert "he policy" in health(here)
        assert any("policy" in line for line in here("doctor", "--config", "north.toml").failed_checks)
        (folder / "policy.toml").write_text(whole)


def test_health_reports_a_quarantined_ledger(folder: Path, here: Callable[..., Ended]) -> None:
    settled(folder)
    assert "quarantine" not in health(here)
    read = read_settings(ProviderSettings, folder / "north.toml")
    with open_ledger(read, folder / "north.toml") as ledger:
        lost = ledger.head()
        assert ledger.check_head(Head(lost.ledger, lost.entries + 9, "0" * 64))
    settled(folder)  # a restart does not end the quarantine
    assert names_facts(health(here), "quarantine", lost.entries + 9, lost.entries)
    with open_ledger(read, folder / "north.toml") as ledger:
        ledger.end_quarantine("nothing was lost", {})
    assert "quarantine" not in health(here)


def test_doctor_finds_the_same_rows_under_two_names(folder: Path, here: Callable[..., Ended]) -> None:
    assert not any("names of rows" in line for line in here("doctor", "--config", "north.toml").failed_checks)
    write(folder, cohort=ROWS, labs=ROWS)
    found = here("doctor", "--config", "north.toml").failed_checks
    assert any(names_facts(line, "'labs'", "'cohort'") for line in found)


def test_doctor_reads_rows_into_scratch_and_makes_no_folder_of_the_provider(
    folder: Path, here: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a folder that whoever runs it makes could not be used by the provider."""
    used, scratch = (
        list[Path](),
        scratch_of(read_settings(ProviderSettings, folder / "north.toml"), folder / "north.toml"),
    )
    monkeypatch.setattr(ScratchFile, "__init__", lambda self, at: (used.append(at), own(self, at))[1])
    assert "5 rows" in here("doctor", "--config", "north.toml").out
    assert used
    assert scratch.folder not in used
    assert not scratch.folder.exists()
    assert not any(each.exists() for each in used)
    scratch.file()
    used.clear()
    here("doctor", "--config", "north.toml")
    assert {each.resolve() for each in used} == {scratch.folder.resolve()}


own = ScratchFile.__init__


def test_doctor_finds_arriving_rows_that_have_another_name_too(folder: Path, here: Callable[..., Ended]) -> None:
    write(folder, cohort=ROWS)
    (folder / "arriving").mkdir()
    np.save(folder / "arriving" / "1.npy", ROWS)
    with (folder / "north.toml").open("a") as settings:
        settings.write('[arriving]\nextra = "arriving"\n')
    found = here("doctor", "--config", "north.toml").failed_checks
    assert any(names_facts(line, "'extra'", "'cohort'") for line in found)


def test_doctor_finds_a_policy_that_promises_more_than_was_kept(folder: Path, here: Callable[..., Ended]) -> None:
    settled(folder)
    own = read_settings(ProviderSettings, folder / "north.toml")
    with open_ledger(own, folder / "north.toml") as ledger:
        assert not any("promises" in line for line in here("doctor", "--config", "north.toml").failed_checks)
        ledger.open(opening(protects=1.0, unit="row-replace-one", issued_at=2**40, expires_at=2**41), LIMITS)
        assert ledger.reserve("job", "query", "digest", None, standing_at(1))
    stated = (folder / "policy.toml").read_text().replace("rows_per_person = 1", "rows_per_person = 2")
    (folder / "policy.toml").write_text(stated)
    found = here("doctor", "--config", "north.toml").failed_checks
    assert any("promises" in line and "protect" in line for line in found)


def test_unusable_rows_do_not_stop_a_provider_and_doctor_counts_them(
    folder: Path, here: Callable[..., Ended], caplog: pytest.LogCaptureFixture
) -> None:
    assert "unusable" not in here("doctor", "--config", "north.toml").out
    data_sets_of(write(folder, cohort=ROWS, labs=ROWS + 1))
    assert not caplog.text
    odd = ROWS.copy()
    odd[[1, 3], 0] = np.nan, np.inf
    assert data_sets_of(write(folder, cohort=odd, labs=ROWS + 1)).keys() == {"cohort", "labs"}
    assert a_line_names(caplog.text, "'cohort'", "`dpspca doctor`")
    assert "2" not in caplog.messages[-1]
    message = here("doctor", "--config", "north.toml").out
    assert a_line_names(message, "ok", "cohort", "5 rows", 2, "unusable")


@pytest.mark.slow
def test_config_check_reports_what_does_not_fit_into_a_greeting(folder: Path, here: Callable[..., Ended]) -> None:
    (folder / "wide.csv").write_text(",".join(f"{number:012}x" for number in range(70_000)) + "\n")
    (folder / "north.toml").write_text(SETTINGS + 'cohort = "cohort.npy"\nwide = "wide.csv"\n')
    checked = here("config", "check", "north.toml")
    assert checked.code == 0
    for message in (checked.out, here("doctor", "--config", "north.toml").out):
        assert a_line_names(message, "wide", "786,432")
    many = "".join(f's{number} = "cohort.npy"\n' for number in range(257))
    (folder / "north.toml").write_text(SETTINGS + many)
    assert a_line_names(here("config", "check", "north.toml").out, "north.toml", 257, 256)
