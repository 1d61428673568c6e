"""A live federation is upgraded from 0.1.0 and goes back, in the order of docs/operations.md.

The software of 0.1.0 is what this repository's history has of it.
"""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from operated_federation import NOW, PROVIDERS, QUARANTINE, OperatedFederation, Software

pytestmark = pytest.mark.slow
"""Each restarts several processes."""

ROOT = Path(__file__).parents[2]
LAST_OF_0_1_0 = "460af182c400a53823f74923f41035d9ba1c5e62"
"""The commit whose software wrote tests/fixtures/version-0.1.0.tar.gz."""
FOLDERS = ("src", "common", "provider", "server", "client", "cli", "protos")
JOB_AFTER_RELEASE = """from dpspca.cli import main
from dpspca.provider import record
record.JOB_SKEW = 0
main.main()
"""
"""The program of 0.1.0, with a ledger that takes jobs right after a quarantine ended, and not five minutes later."""


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Software:
    """Unpack the software of 0.1.0."""
    folder = tmp_path_factory.mktemp("software")
    git, archive = shutil.which("git"), folder / "software.tar"
    command = [git or "git", "-C", ROOT, "archive", "--output", archive, LAST_OF_0_1_0, *FOLDERS]
    if git is None or subprocess.run(command, capture_output=True, check=False).returncode:  # noqa: S603  # our own
        pytest.skip("this copy of the repository has no history of 0.1.0")
    subprocess.run(["tar", "-xf", archive], cwd=folder, check=True)  # noqa: S603, S607
    return Software(JOB_AFTER_RELEASE, folder / "src")


@pytest.fixture
def federation(tmp_path: Path, earlier: Software) -> Iterator[OperatedFederation]:
    """A federation of 0.1.0 that has run one job."""
    made = OperatedFederation(tmp_path, earlier)
    try:
        made.found()
        made.write_files()
        made.open()
        made.job()
        yield made
    finally:
        made.kill()


def upgrade(federation: OperatedFederation) -> None:
    """Stop everything, copy, mend the policies, and start the coordinator and then the providers with this version."""
    federation.stop(*PROVIDERS, "hub")
    for name in ("hub", *PROVIDERS):
        federation.copy(name, f"{name}-of-0.1.0")
    federation.software = NOW
    federation.write_job()
    for name in PROVIDERS:
        policy = federation.home(name) / "policy.toml"
        found = federation.tried("policy", "check", policy)
        assert (found.returncode, "lacks methods" in found.stdout) == (1, True), found.stdout
        words = policy.read_text().replace("algorithms =", "methods =")
        policy.write_text(words.replace("minimum_parties =", "minimum_providers ="))
        federation.run("policy", "check", policy)
        federation.run("config", "check", federation.home(name) / "settings.toml")
    for name in ("hub", *PROVIDERS):
        federation.start(name)


def assert_refuses_newer_files(federation: OperatedFederation, name: str, role: str) -> None:
    done = federation.tried(role, "start", *federation.settings(name))
    assert (done.returncode, "version" in done.stderr) == (2, True), done.stderr


def test_a_federation_of_0_1_0_goes_on_and_back_with_what_it_spent(
    federation: OperatedFederation, earlier: Software
) -> None:
    shutil.copy(federation.folder / "model.dpspca", federation.folder / "of-0.1.0.dpspca")
    once = federation.spent("north")
    upgrade(federation)
    assert federation.spent("north") == once > 0
    federation.job()
    assert federation.spent("north") == 2 * once
    assert federation.parties() == federation.parties("of-0.1.0.dpspca") == 2
    assert "All is well" in federation.ledger("verify")
    federation.stop(*PROVIDERS, "hub")
    federation.software = earlier
    federation.write_job()
    assert_refuses_newer_files(federation, "hub", "coordinator")
    federation.copy("hub-of-0.1.0", "hub")
    federation.start("hub")
    for name in PROVIDERS:
        shutil.copy(federation.home(f"{name}-of-0.1.0") / "policy.toml", federation.home(name))
        assert_refuses_newer_files(federation, name, "provider")
        federation.copy(f"{name}-of-0.1.0/ledger", f"{name}/ledger")  # and its head file stays where it is
        federation.start(name, QUARANTINE)
        federation.stop(name)
        federation.end_quarantine(name, "job.json")
        federation.start(name)
    federation.job()
    assert federation.parties() == 2
    assert federation.spent("north") == 3 * once  # before the upgrade, since then, and now
