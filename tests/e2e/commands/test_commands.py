"""The commands of an analyst and an operator, against one federation of real processes."""

import json
import logging
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from commands import Ended, commands_in
from facts import a_line_names, names_facts
from html_pages import of_tag
from live import COMMAND, NAMES, live_parties
from local_federation import Enrolment, now
from numpy.typing import NDArray
from timeouts import PROGRAM_TIMEOUT

from dpspca import load_model, save_model
from dpspca.cli.arguments.method_options import DEFAULT_METHOD
from dpspca.cli.render import logs
from dpspca.client.findings import UNCENTRED
from dpspca.client.jobs import JobFile
from dpspca.common.algorithms import catalogue
from dpspca.common.algorithms.catalogue import CATALOGUE
from dpspca.common.job import Centering
from dpspca.common.names import Role
from dpspca.common.results.statement import TRUST
from dpspca.common.trust.authority import Authority

PLAIN = os.environ | {"COLUMNS": "200", "NO_COLOR": "1"}
JOB_OF_ANY = ["--components", "2", "--norm-bound", "12", "--unit", "row-replace-one", "--centering", "none"]
JOB = [*JOB_OF_ANY, "--sparsity", "4", "--epsilon", "4", "--delta", "1e-6"]
WIDE = [*JOB_OF_ANY, "--sparsity", "21", "--epsilon", "4", "--delta", "1e-6"]
"""A job of more features than there are."""

MORE = {"output-perturbation": ("--option", "privacy=pure"), "dps-pca": ("--sparsity", "4")}
"""What a job needs where the town's policy sets no part of delta aside for mechanisms of their own."""
A_JOB = {
    "schema": {"dimension": 20},
    "unit": "row-replace-one",
    "budget": {"epsilon": 1, "delta": 1e-6},
    "norm_bound": 12,
    "components": 2,
    "centering": "none",
    "options": {"sparsity": 4},
    "method": "dps-pca",
}


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], enrolment: Path) -> Callable[..., Ended]:
    return commands_in(enrolment, monkeypatch, capfd)


@pytest.fixture(scope="module")
def enrolment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Run a federation and yield its folder. The provider west is enrolled but does not run."""
    folder = tmp_path_factory.mktemp("town")
    with live_parties(folder):
        yield folder


@pytest.fixture(scope="module")
def finished_job(enrolment: Path) -> Ended:
    """Run a job from flags, with the columns on offer."""
    order = [*COMMAND, "run", *JOB, "--config", "ada.toml", "--data-set", "cohort", "--plots", "plots"]
    done = subprocess.run(order, cwd=enrolment, capture_output=True, text=True, check=False, env=PLAIN)  # noqa: S603  # our own program
    return Ended(done.returncode, done.stdout, done.stderr)


@pytest.mark.slow
def test_a_job_from_flags_takes_columns_and_providers_on_offer(finished_job: Ended, enrolment: Path) -> None:
    assert finished_job.code == 0, finished_job.err
    model = load_model(enrolment / "model.dpspca")
    assert model.feature_names == tuple(NAMES)
    assert {0, 1} <= set(model.support)
    assert (model.statement.parties, model.statement.federated) == (2, True)
    assert TRUST in " ".join(finished_job.out.split())
    plots = ["scree.png", "loadings.png", "biplot.png"]
    assert finished_job.out.split()[-4:] == ["model.dpspca", *(f"plots/{name}" for name in plots)]
    assert all((enrolment / "plots" / name).stat().st_size for name in plots)


@pytest.mark.parametrize("name", [name for name in CATALOGUE if name != DEFAULT_METHOD])
def test_a_job_from_flags_can_name_any_method(name: str, here: Callable[..., Ended], enrolment: Path) -> None:
    budget = ["--delta", "1e-6", "--epsilon", "1", *MORE.get(name, ())]
    asked = ["--method", name, "--data-set", "cohort", "--config", "ada.toml", "--out", f"{name}.model", "--json"]
    facts = here("run", *JOB_OF_ANY, *budget, *asked).facts
    assert facts["model"]["statement"]["parties"] == 2
    assert load_model(enrolment / f"{name}.model").components.shape == (2, len(NAMES))


def test_progress_prints_who_answered_and_the_cost_of_each_answer(finished_job: Ended) -> None:
    answers = [line for line in finished_job.err.splitlines() if "north, south answered" in line]
    assert answers
    assert all(re.search(r"transferred, epsilon \S+ of 4 spent", line) for line in answers)
    assert "epsilon 4 of 4" in answers[-1]


def test_participants_are_printed_with_the_most_they_spent(finished_job: Ended) -> None:
    table = [line for line in finished_job.out.splitlines() if "│ north" in line]
    assert len(table) == 1
    assert re.search(r"(\d+) │ \1 ", re.sub(" +", " ", table[0]))


def test_an_absent_provider_is_named_with_the_reason(here: Callable[..., Ended], enrolment: Path) -> None:
    plan = here("plan", *JOB, "--dimension", 20, "--answer-seconds", 1, "--write", "short.json", "--json")
    asked = [word for name in ("north", "south", "west") for word in ("--provider", name)]
    ended = here("run", "short.json", "--config", "ada.toml", "--data-set", "cohort", *asked, "--json", "--out", "b")
    facts = ended.facts
    spec = JobFile.read(enrolment / "short.json").spec
    parties = {each["name"]: each for each in facts["participants"]}
    assert parties["west"]["reason"].startswith("Not connected")
    assert parties["west"]["epsilon_at_most"] == 0
    assert parties["north"]["epsilon_at_most"] == catalogue.plan(spec).epsilon_after(len(plan.facts["queries"]))
    assert facts["model"]["statement"]["parties"] == 2
    assert facts["files"] == {"model": "b"}


@pytest.mark.slow
def test_absent_providers_are_named_before_and_while_waiting(here: Callable[..., Ended]) -> None:
    order = ["run", *JOB, "--dimension", 20, "--answer-seconds", 5, "--config", "ada.toml", "--data-set", "cohort"]
    ended = here(*order, "--minimum-providers", 2, "--provider", "nroth", "--provider", "south", "--out", "nobodys")
    assert ended.code == 2
    _, warning, name, *progress = ended.err.splitlines()
    start = r"not connected since the coordinator started at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
    unknown = "unknown to the coordinator: check the name"
    assert re.match(
        rf"Missing now: nroth \({unknown}; {start}; did you mean 'north'\?\)\. The job waits up to 5 seconds", warning
    )
    assert name.startswith("job ")
    (waiting,) = (line for line in progress if line.startswith("Waiting for nroth ("))
    assert re.search(r"No progress for [23] seconds; after 5 the job continues without them or fails\.", waiting)


def test_no_warning_is_printed_if_all_providers_are_connected(finished_job: Ended) -> None:
    assert "Waiting" not in finished_job.err
    assert "Missing" not in finished_job.err


def test_flags_override_the_job_file(here: Callable[..., Ended], enrolment: Path) -> None:
    rows = {"data_set": "nothing", "providers": ["west"]}
    (enrolment / "flags.json").write_text(json.dumps({"job": A_JOB} | rows))
    asked = ["--data-set", "cohort", "--provider", "north", "--provider", "south"]
    ended = here("run", "flags.json", "--config", "ada.toml", *asked, "--out", "e", "--json")
    assert (ended.facts["data_set"], [each["name"] for each in ended.facts["participants"]]) == (
        "cohort",
        ["north", "south"],
    )


@pytest.mark.usefixtures("finished_job")
def test_an_existing_model_is_kept_and_nothing_is_submitted(here: Callable[..., Ended], enrolment: Path) -> None:
    before = (enrolment / "model.dpspca").read_bytes()
    jobs = here("jobs", "list", "--config", "ada.toml", "--json").facts
    order = ["run", *JOB, "--config", "ada.toml", "--data-set", "cohort"]
    message = here(*order).error_line
    assert re.fullmatch(r"model\.dpspca already exists\. .*--out.*--force\.", message)
    assert (enrolment / "model.dpspca").read_bytes() == before
    assert here("jobs", "list", "--config", "ada.toml", "--json").facts == jobs
    assert here(*order, "--force", "--json").code == 0
    assert (enrolment / "model.dpspca").read_bytes() != before


@pytest.mark.slow
def test_a_model_file_that_appears_meanwhile_is_not_replaced(here: Callable[..., Ended], enrolment: Path) -> None:
    order = ["run", *JOB, "--answer-seconds", "3", "--config", "ada.toml", "--data-set", "cohort", "--out", "f"]
    asked = ["--dimension", "20", "--provider", "north", "--provider", "south", "--provider", "west"]
    process = subprocess.Popen([*COMMAND, *order, *asked], cwd=enrolment, stderr=subprocess.PIPE, text=True)  # noqa: S603  # our own program
    assert process.stderr is not None
    next(line for line in process.stderr if line.startswith("job "))
    (enrolment / "f").write_text("another's")
    output = process.communicate(timeout=PROGRAM_TIMEOUT)[1]
    assert process.returncode == 2
    (name,) = re.findall(r"f already exists. The coordinator still has the model: `dpspca jobs result (\w+) ", output)
    assert (enrolment / "f").read_text() == "another's"
    assert here("jobs", "result", name, "--config", "ada.toml", "--out", "g").code == 0


def test_an_empty_list_is_reported_as_empty(here: Callable[..., Ended], enrolment: Path) -> None:
    Enrolment(enrolment, Authority.open(enrolment / "authority", now)).identity(Role.ANALYST, "new")
    (enrolment / "new.toml").write_text((enrolment / "ada.toml").read_text().replace("analyst-ada", "analyst-new"))
    assert here("jobs", "list", "--config", "new.toml").out.splitlines() == ["The coordinator knows no job of yours."]
    assert here("jobs", "list", "--config", "new.toml", "--json").facts == {"jobs": []}


def test_jobs_are_listed_shown_watched_cancelled_and_fetched(here: Callable[..., Ended], enrolment: Path) -> None:
    at = ("--config", "ada.toml")
    (enrolment / "job.toml").write_text(
        'data_set = "cohort"\nproviders = ["west"]\nunit = "row-replace-one"\nnorm_bound = 12\ncomponents = 2\n'
        "centering = 'none'\n[schema]\ndimension = 20\n[budget]\nepsilon = 1\ndelta = 1e-6\n[options]\nsparsity = 4\n"
    )
    name = here("run", "job.toml", *at, "--detach").out.strip()
    listed = {each["job"]: each for each in here("jobs", "list", *at, "--json").facts["jobs"]}
    assert listed[name]["state"] == "waiting"
    assert name[:12] in here("jobs", "list", *at).out
    assert f"job {name}" in here("jobs", "show", name[:12], *at).out
    assert here("jobs", "cancel", name[:12], *at, "--json").facts["state"] == "cancelled"
    for words in (["watch"], ["watch", "--json"], ["result", "--out", "h"]):
        refused = here("jobs", *words, name, *at)
        assert refused.code == 2
        assert a_line_names(refused.err, "(cancelled)", "analyst")
        assert len(refused.err.splitlines()) <= 2
    assert "cancelled: 0 of" in here("jobs", "watch", name, *at).out
    assert json.loads(here("jobs", "watch", name, *at, "--json").out)["state"] == "cancelled"
    assert "no such job" in here("jobs", "show", "0" * 12, *at).err


def test_watching_a_job_that_fails_exits_with_2(here: Callable[..., Ended]) -> None:
    order = ["run", *JOB, "--answer-seconds", "1", "--config", "ada.toml", "--data-set", "cohort"]
    asked = ["--dimension", "20", "--provider", "west"]
    name = here(*order, *asked, "--detach").out.strip()
    finished_job, watched = (
        here(*order, *asked, "--out", "failed"),
        here("jobs", "watch", name, "--config", "ada.toml", "--json"),
    )
    for ended in (finished_job, watched):
        assert ended.code == 2
        assert a_line_names(ended.err, "(failed)", "at least 1", "west")
        assert ended.err.count("Not connected with the data set") == 1
    output = json.loads(watched.out)
    assert (output["state"], output["job"]) == ("failed", name)


def test_watching_a_job_that_is_done_exits_with_0(here: Callable[..., Ended]) -> None:
    order = ["run", *JOB, "--config", "ada.toml", "--data-set", "cohort", "--detach"]
    name = here(*order).out.strip()
    assert here("jobs", "watch", name, "--config", "ada.toml", "--json").facts["state"] == "done"


@pytest.mark.slow
def test_an_interrupted_run_goes_on_and_can_be_fetched_later(here: Callable[..., Ended], enrolment: Path) -> None:
    order = ["run", *JOB, "--answer-seconds", "2", "--config", "ada.toml", "--data-set", "cohort"]
    asked = ["--dimension", "20", "--provider", "north", "--provider", "south", "--provider", "west", "--out", "d"]
    process = subprocess.Popen([*COMMAND, *order, *asked], cwd=enrolment, stderr=subprocess.PIPE, text=True)  # noqa: S603  # our own program
    assert process.stderr is not None
    name = next(line for line in process.stderr if line.startswith("job ")).split()[1]
    next(line for line in process.stderr if "waiting" in line)
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=PROGRAM_TIMEOUT)[1]
    assert process.returncode == 130
    assert f"`dpspca jobs watch {name[:12]} --config ada.toml`" in output
    fetched = here("jobs", "result", name[:12], "--config", "ada.toml", "--out", "later", "--json")
    assert fetched.facts["model"]["statement"]["parties"] == 2
    assert load_model(enrolment / "later").components.shape == (2, 20)


def test_a_terminal_shows_a_progress_bar(enrolment: Path) -> None:
    ours, theirs = pty.openpty()
    order = [*COMMAND, "run", *JOB, "--config", "ada.toml", "--data-set", "cohort", "--out", "c"]
    terminal = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen(order, cwd=enrolment, stdout=subprocess.DEVNULL, stderr=theirs, env=terminal)  # noqa: S603  # our own program
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 4096):
            shown += piece
    except OSError:  # what reading a terminal raises at its end
        pass
    os.close(ours)
    assert process.wait(20) == 0
    assert "━".encode() in shown
    assert b"2 answers" in shown


def test_data_sets_are_listed_with_their_columns_and_providers(here: Callable[..., Ended]) -> None:
    facts = here("datasets", "--config", "ada.toml", "--json").facts
    expected = {"data_set": "cohort", "dimension": 20, "columns": NAMES, "providers": ["north", "south"]}
    assert facts == {"data_sets": [expected | {"dictionary": None}]}
    assert "north, south" in here("datasets", "--config", "ada.toml").out


def test_health_reports_coordinator_and_providers(here: Callable[..., Ended]) -> None:
    for program, message in (("hub-up", "serving"), ("north", "connected"), ("ada", "serving")):
        assert here("health", "--config", f"{program}.toml").out.strip() == message
    away = here("health", "--config", "west.toml", "--json")
    assert away.code == 1
    assert json.loads(away.out)["details"].startswith("This provider is not connected.")


@pytest.mark.parametrize("program", ["hub-up", "north", "ada"])
def test_doctor_reports_no_problem_in_a_sound_federation(program: str, here: Callable[..., Ended]) -> None:
    facts = here("doctor", "--config", f"{program}.toml", "--json").facts
    assert facts["passed"] is True
    assert {"settings", "identity", "clock", "certificate", "authority", "port", "coordinator"} <= {
        each["name"] for each in facts["checks"]
    }


def test_doctor_reports_a_problem_and_skips_dependent_checks(here: Callable[..., Ended], enrolment: Path) -> None:
    (away,) = here("doctor", "--config", "west.toml").failed_checks
    assert "not connected" in away
    (enrolment / "broken.toml").write_text(
        'coordinator = "127.0.0.1:1"\nidentity = "provider-west"\nrevocations = "nowhere.pem"\n'
        'policy = "policy.toml"\n[data_sets]\na = "none.csv"\n'
    )
    output = here("doctor", "--config", "broken.toml").failed_checks
    assert [line.split(":")[0].split(maxsplit=1)[1] for line in output] == ["revocation list", "data set a", "port"]
    (enrolment / "wrong-role.toml").write_text(
        (enrolment / "west.toml").read_text().replace("provider-west", "analyst-ada")
    )
    (wrong, *_) = here("doctor", "--config", "wrong-role.toml").failed_checks
    assert names_facts(wrong, "dpspca://town/analyst/ada", "provider")
    (enrolment / "bad.toml").write_text('listen = "here"\n')
    assert "settings" in here("doctor", "--config", "bad.toml").failed_checks[0]


def test_a_party_of_another_federation_sees_the_handshake_error(
    here: Callable[..., Ended], enrolment: Path, tmp_path: Path
) -> None:
    Enrolment.create(tmp_path, "village").identity(Role.ANALYST, "eve")
    (enrolment / "eve.toml").write_text(
        (enrolment / "ada.toml").read_text().replace("analyst-ada", str(tmp_path / "analyst-eve"))
    )
    (output,) = here("doctor", "--config", "eve.toml").failed_checks
    assert "coordinator" in output
    assert "UNAVAILABLE" in output


def test_config_check_reports_all_mistakes_in_settings(here: Callable[..., Ended], enrolment: Path) -> None:
    assert here("config", "check", "north.toml", "--json").facts["program"] == "provider"
    (enrolment / "bad.toml").write_text('listen = "here"\ncolour = 1\n')
    ended = here("config", "check", "bad.toml")
    assert ended.code == 1
    for part in ("settings of the coordinator", "colour", "identity, revocations", "is not an address"):
        assert part in ended.out


def test_an_identity_in_use_can_be_shown_and_renewed(here: Callable[..., Ended], enrolment: Path) -> None:
    before = here("identity", "show", "provider-west", "--json").facts
    assert before["name"] == "dpspca://town/provider/west"
    study = 'federation = "town"\ncoordinator = "hub"\naddress = "hub:1"\nproviders = []\nanalysts = []\n'
    (enrolment / "authority" / "study.toml").write_text(study + "certificate_days = 60\n")
    (enrolment / "post").mkdir()
    renew = ("identity", "renew", "--config", "west.toml", "--exchange", "post", "--no-wait", "--json")
    assert here(*renew).facts["renewed"] is False
    assert here("identity", "show", "provider-west", "--json").facts == before
    (signed,) = here("study", "sign", "--exchange", "post", "--yes", "--json").facts["requests"]
    assert (signed["outcome"], signed["name"]) == ("renews", before["name"])
    assert here(*renew).facts["until"] > before["until"]
    listed = here("study", "show", "--json").facts["certificates"]
    assert len(listed) == len(Authority.open(enrolment / "authority", now).list())


@pytest.mark.usefixtures("finished_job")
def test_a_stored_model_has_a_report_with_the_numbers_of_its_json(here: Callable[..., Ended], enrolment: Path) -> None:
    assert here("report", "model.dpspca", "--top", 3, "--json").facts == {"file": "report.html"}
    facts = here("model", "show", "model.dpspca", "--top", 3, "--json").facts
    written = (enrolment / "report.html").read_text(encoding="utf-8")
    loadings = [feature["loading"] for component in facts["components"] for feature in component["top_features"]]
    assert set(loadings) <= {float(each.attributes["value"]) for each in of_tag(written, "data")}
    assert facts["statement"]["headline"] in [each.text for each in of_tag(written, "p")]
    assert "--top" in here("report", "model.dpspca", "--top", 0).error_line
    assert ".html" in here("report", "model.dpspca", "--out", "report.pdf").error_line


@pytest.mark.usefixtures("finished_job")
def test_a_stored_model_can_be_plotted_applied_and_exported(here: Callable[..., Ended], enrolment: Path) -> None:
    stored = load_model(enrolment / "model.dpspca")
    assert (
        here("model", "plot", "model.dpspca", "--out", "drawn", "--json").facts["files"]["scree"] == "drawn/scree.png"
    )
    ended = here("model", "project", "model.dpspca", "north.csv", "--out", "scores.npy")
    warned = ended.err
    rows = np.loadtxt(enrolment / "north.csv", delimiter=",", skiprows=1)
    assert np.array_equal(np.load(enrolment / "scores.npy"), stored.transform(rows))
    again = here("model", "project", "model.dpspca", "north.csv", "--out", "scores.csv", "--json").facts
    assert again["warning"] == warned.strip()
    assert names_facts(warned, "Scores", "not private")
    (enrolment / "patient.csv").write_text("\n".join((enrolment / "north.csv").read_text().splitlines()[:2]))
    here("model", "project", "model.dpspca", "patient.csv", "--out", "patient.npy")
    assert np.array_equal(np.load(enrolment / "patient.npy"), stored.transform(rows[:1]))
    here("model", "export", "model.dpspca", "--out", "loadings.csv")
    first = (enrolment / "loadings.csv").read_text().splitlines()[:2]
    assert first[0] == "feature,component 1,component 2"
    assert first[1].startswith("gene 0,")
    here("model", "export", "model.dpspca", "--out", "all.json")
    assert np.array_equal(json.loads((enrolment / "all.json").read_text())["components"], stored.components)


def test_a_job_from_a_plan_gets_the_column_names_on_offer(here: Callable[..., Ended], enrolment: Path) -> None:
    here("plan", *JOB, "--dimension", "20", "--write", "planned.json")
    assert json.loads((enrolment / "planned.json").read_text())["schema"]["names"] is None
    ended = here("run", "planned.json", "--config", "ada.toml", "--data-set", "cohort", "--out", "planned.dpspca")
    assert ended.code == 0, ended.err
    assert load_model(enrolment / "planned.dpspca").feature_names == tuple(NAMES)


def test_a_job_file_that_leaves_centring_open_is_settled_and_says_why(
    here: Callable[..., Ended], enrolment: Path
) -> None:
    (enrolment / "open.json").write_text(json.dumps(A_JOB | {"centering": "auto"}), encoding="utf-8")
    done = here("run", "open.json", "--config", "ada.toml", "--data-set", "cohort", "--out", "open.dpspca")
    assert done.code == 0
    statement = load_model(enrolment / "open.dpspca").statement
    assert statement.centering is Centering.NONE
    reason = statement.centering_reason
    assert names_facts(reason, "mean_bound")
    assert reason in done.err
    assert reason in here("model", "show", "open.dpspca").out.replace("\n", " ")
    planned = here("plan", "open.json", "--provider", "north", "--json")
    assert planned.facts["job"]["centering"] == "pairs"
    assert names_facts(planned.facts["remarks"][0], "pairs", "mean_bound")


def test_a_job_with_other_column_names_is_refused_at_once(here: Callable[..., Ended], enrolment: Path) -> None:
    (enrolment / "swapped.json").write_text(json.dumps(A_JOB | {"schema": {"dimension": 20, "names": NAMES[::-1]}}))
    before = here("jobs", "list", "--config", "ada.toml", "--json").facts
    refused = here("run", "swapped.json", "--config", "ada.toml", "--data-set", "cohort", "--out", "swapped.dpspca")
    uncentred, refusal = refused.err.splitlines()
    assert uncentred == UNCENTRED
    assert f"column 1 is '{NAMES[-1]}' for the job, and '{NAMES[0]}' for north" in refusal
    assert here("jobs", "list", "--config", "ada.toml", "--json").facts == before


@pytest.mark.usefixtures("finished_job")
def test_rows_are_matched_to_a_model_by_the_names_of_columns(here: Callable[..., Ended], enrolment: Path) -> None:
    table = np.loadtxt(enrolment / "north.csv", delimiter=",", skiprows=1)[:5]
    expected = load_model(enrolment / "model.dpspca").transform(table)
    order = np.random.default_rng(1).permutation(20)

    def write(columns: list[str], rows: NDArray[np.float64]) -> None:
        lines = [",".join(columns), *(",".join(map(repr, row)) for row in rows.tolist())]
        (enrolment / "some.csv").write_text("\n".join(lines) + "\n")

    def scored(*words: object) -> Ended:
        return here("model", "project", "model.dpspca", *words, "--out", "some.npy", "--force")

    write([NAMES[place] for place in order], table[:, order])
    assert scored("some.csv").code == 0
    assert np.array_equal(np.load(enrolment / "some.npy"), expected)
    write(NAMES[1:], table[:, 1:])
    assert f"missing: '{NAMES[0]}'" in scored("some.csv").error_line
    write([*NAMES, "more"], np.c_[table, table[:, 0]])
    assert "unknown: 'more'" in scored("some.csv").error_line
    np.save(enrolment / "bare.npy", table)
    assert names_facts(scored("bare.npy").error_line, "bare.npy", "--by-position")
    assert scored("bare.npy", "--by-position").code == 0
    assert np.array_equal(np.load(enrolment / "some.npy"), expected)


@pytest.mark.usefixtures("finished_job")
def test_rows_are_read_as_the_provider_s_settings_declare(here: Callable[..., Ended], enrolment: Path) -> None:
    table = np.loadtxt(enrolment / "north.csv", delimiter=",", skiprows=1)[:5]
    lines = [";".join(["id", *NAMES]), *(";".join(["x", *map(repr, row)]).replace(".", ",") for row in table.tolist())]
    (enrolment / "german.csv").write_text("\n".join(lines) + "\n")
    declared = '[reading.cohort]\nleave_out = ["id"]\ndecimal = ","\n'
    (enrolment / "german.toml").write_text((enrolment / "north.toml").read_text() + declared)

    def scored(*words: object) -> Ended:
        return here("model", "project", "model.dpspca", "german.csv", "--out", "german.npy", "--force", *words)

    assert "holds text" in scored().error_line
    assert scored("--config", "german.toml").code == 0  # there is one data set
    assert "Available: cohort" in scored("--config", "german.toml", "--data-set", "labs").error_line
    assert scored("--config", "german.toml", "--data-set", "cohort").code == 0
    assert np.array_equal(np.load(enrolment / "german.npy"), load_model(enrolment / "model.dpspca").transform(table))


@pytest.mark.usefixtures("finished_job")
def test_rows_with_column_names_are_refused_for_a_model_without(here: Callable[..., Ended], enrolment: Path) -> None:
    save_model(replace(load_model(enrolment / "model.dpspca"), feature_names=None), enrolment / "bare.dpspca")
    refused = here("model", "project", "bare.dpspca", "north.csv", "--out", "bare-scores.npy")
    assert names_facts(refused.error_line, f"'{NAMES[0]}'", "--by-position")
    assert not (enrolment / "bare-scores.npy").exists()
    assert here("model", "project", "bare.dpspca", "north.csv", "--out", "bare-scores.npy", "--by-position").code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "--data-set", "cohort"], "these flags are needed: --components"),
        (
            ["run", *JOB, "--data-set", "nobody"],
            "data set 'nobody': no connected provider offers it. Available: cohort.",
        ),
        (["run", *WIDE, "--data-set", "cohort"], "to that of columns) is 21; it must lie between 2 and 20"),
        (["run", *WIDE, "--data-set", "cohort", "--dimension", "20"], "21, but there are only 20 features"),
        (["run", *JOB, "--data-set", "cohort", "--dimension", "9"], "has 9 columns, but 'cohort' at north has 20"),
        (["run", *JOB, "--data-set", "cohort", "--provider", "south", "--dimension", "9"], "'cohort' at south has 20"),
        (["run", *JOB, "--data-set", "cohort", "--minimum-providers", "3"], "at least 3 providers (minimum_providers)"),
        (["run", *JOB, "--data-set", "cohort", "--out", "/proc/none/model"], "cannot be written"),
        (["run", "nobody.json"], "providers is 'all'"),
        (["run", "rows.json", "--minimum-providers", "2"], "Both a job and flags are given: --minimum-providers"),
        (
            ["model", "export", "model.dpspca", "--out", "model.txt"],
            "Unknown format 'txt'. Available: json, csv",
        ),
        (["model", "project", "model.dpspca", "none.csv", "--force"], "cannot be read"),
        (
            ["jobs", "result", "abc", "--config", "ada.toml"],
            "model.dpspca already exists. Name another file with --out",
        ),
        (
            ["coordinator", "start", "--config", "north.toml"],
            "holds the settings of a provider, not of the coordinator.",
        ),
        (["provider", "start", "--config", "hub.toml"], "holds the settings of the coordinator, not of a provider."),
        (["datasets", "--config", "north.toml"], "holds the settings of a provider, not of an analyst. Name the right"),
        (["coordinator", "start", "--config", "taken.toml"], "Cannot listen on"),
    ],
)
@pytest.mark.usefixtures("finished_job")
def test_errors_go_to_standard_error_and_exit_with_2(
    words: list[str], message: str, here: Callable[..., Ended], enrolment: Path
) -> None:
    (enrolment / "taken.toml").write_text((enrolment / "hub-up.toml").read_text())
    for name, rows in (("rows", {"data_set": "cohort"}), ("nobody", {"providers": "all"})):
        (enrolment / f"{name}.json").write_text(json.dumps({"job": A_JOB} | rows))
    where = ["--config", "ada.toml", "--force"] if words[0] == "run" else []
    ended = here(*words, *where)
    assert ended.code == 2
    assert message in ended.err
    assert ended.out == ""


@pytest.mark.parametrize("form", [logs.HumanLines, logs.JsonLines])
def test_untrusted_text_begins_no_log_line_and_controls_no_terminal(form: type[logging.Formatter]) -> None:
    record = logging.LogRecord("dpspca.x", logging.INFO, "x.py", 1, "said: %s", ("a\nERROR \x1b[2J",), None)
    record.created = 0.5
    line = form().format(record)
    assert line.isprintable()
    assert "1970-01-01T00:00:00" in line


@pytest.mark.slow
def test_the_shell_completes_commands() -> None:
    asking = os.environ | {"_DPSPCA_COMPLETE": "complete_bash", "COMP_WORDS": "dpspca mo", "COMP_CWORD": "1"}
    done = subprocess.run(  # noqa: S603  # our own program
        [Path(sys.executable).with_name("dpspca")], env=asking, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["model"]
