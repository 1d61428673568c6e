"""A job in a file or in flags names a dictionary and features; its columns and its norm bound follow."""

import json
import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import Ended, commands_in
from facts import facts, names_facts

from dpspca.cli.arguments import job_files, job_flags
from dpspca.client.jobs import job_dictionaries
from dpspca.common.dictionary import Dictionary
from dpspca.common.errors import InvalidParameterError
from dpspca.common.job import PRIVATE_BOUND
from dpspca.common.storage import read_dictionary

Here = Callable[..., Ended]

STUDY = """
format = "dpspca-dictionary-1"
[features.age]
kind = "number"
unit = "years"
range = [0, 110]
[features.sex]
kind = "category"
levels = ["female", "male"]
[features.bmi]
kind = "number"
unit = "kg/m²"
range = [10, 60]
"""
KNOWN = Dictionary.parse(tomllib.loads(STUDY))
JOB: dict[str, Any] = {
    "dictionary": "study.toml",
    "features": ["sex", "age"],
    "unit": "row-add-remove",
    "components": 2,
    "budget": {"epsilon": 1.0, "delta": 1e-6},
}
FLAGS = (
    "--components",
    "1",
    "--unit",
    "row-add-remove",
    "--epsilon",
    "1",
    "--delta",
    "1e-6",
    "--dictionary",
    "study.toml",
)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Here:
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    (tmp_path / "other.toml").write_text(STUDY.replace("110", "120"), encoding="utf-8")
    return commands_in(tmp_path, monkeypatch, capfd)


def read(folder: Path, job: dict[str, Any], *, dictionary: str | None = None) -> job_files.JobFile:
    (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
    return job_files.from_file(
        folder / "job.json", job_flags.Flags(dictionary=None if dictionary is None else folder / dictionary)
    )


@pytest.mark.usefixtures("here")
def test_the_schema_and_the_bound_of_a_file_follow_from_its_features(tmp_path: Path) -> None:
    made = read(tmp_path, JOB)
    assert made.dictionary == KNOWN
    assert made.spec.schema.names == ("sex=female", "sex=male", "age")
    assert made.spec.norm_bound == made.public_bound == KNOWN.subset(["sex", "age"]).norm_bound()
    assert made.spec.dictionary == KNOWN.digest()
    every = read(tmp_path, {key: value for key, value in JOB.items() if key != "features"})
    assert every.spec.schema.names == KNOWN.columns
    assert read(tmp_path, JOB | {"norm_bound": "private"}).spec.norm_bound == PRIVATE_BOUND
    assert read(tmp_path, JOB | {"norm_bound": 3.0}).spec.norm_bound == 3.0
    assert read(tmp_path, JOB | {"centering": "private"}).spec.mean_bound == made.spec.norm_bound
    assert read(tmp_path, {"data_set": "cohort", "job": JOB}).spec == made.spec


@pytest.mark.usefixtures("here")
def test_a_job_with_a_digest_is_read_with_or_without_its_dictionary(tmp_path: Path) -> None:
    with_digest = read(tmp_path, JOB).spec.to_dict()
    assert read(tmp_path, with_digest).dictionary is None
    assert read(tmp_path, with_digest, dictionary="study.toml").dictionary == KNOWN
    with pytest.raises(
        InvalidParameterError, match=facts("other.toml", KNOWN.digest(), "`dpspca plan --write`")
    ) as refused:
        read(tmp_path, with_digest, dictionary="other.toml")
    assert "dictionary.job(" not in str(refused.value), "this is Python"
    assert "--dictionary" not in str(refused.value), "it leads to the same error"


@pytest.mark.parametrize("form", ["toml", "json"])
def test_a_dictionary_in_place_of_a_job_is_called_a_dictionary(form: str, here: Here, tmp_path: Path) -> None:
    given = "study.toml"
    if form == "json":
        given = "study.json"
        (tmp_path / given).write_text(json.dumps(tomllib.loads(STUDY)), encoding="utf-8")
    message = here("plan", given).error_line
    assert names_facts(message, given, "a dictionary", "`dpspca config sample job`")
    assert "None" not in message


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"features": ["age", "weight"]}, "feature 'weight'"),
        ({"features": []}, "features is []"),
        ({"features": "age"}, "features is 'age'"),
        ({"features": ["age", "age"]}, "used for several features"),
        ({"dictionary": "absent.toml"}, "cannot be read"),
        ({"dictionary": ""}, "names features, and its dictionary"),
        ({"dictionary": None}, "names features, and its dictionary"),
        ({"schema": {"dimension": 3}}, "a dictionary and a schema"),
        ({"unit": "entry", "method": "noisy-power"}, "does not protect rows"),
    ],
)
@pytest.mark.usefixtures("here")
def test_what_is_wrong_with_a_described_job_is_named(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidParameterError) as refused:
        read(tmp_path, JOB | change)
    assert said in str(refused.value)


def test_flags_describe_the_same_job(here: Here, tmp_path: Path) -> None:
    told = here("plan", *FLAGS, "--feature", "sex", "--feature", "age", "--write", "made.json", "--json")
    assert told.code == 0, told.err
    made = job_files.from_file(tmp_path / "made.json", job_flags.Flags()).spec
    assert made.schema.names == ("sex=female", "sex=male", "age")
    assert made.norm_bound == KNOWN.subset(["sex", "age"]).norm_bound()
    for more, bound in ((("--norm-bound", "private"), PRIVATE_BOUND), (("--norm-bound", "2.5"), 2.5)):
        assert here("plan", *FLAGS, *more, "--write", "made.json", "--force", "--json").code == 0
        assert job_files.from_file(tmp_path / "made.json", job_flags.Flags()).spec.norm_bound == bound
    again = ("plan", *FLAGS, "--centering", "private", "--write", "made.json", "--json")
    assert "--force" in here(*again).error_line
    assert here(*again, "--force").code == 0
    assert job_files.from_file(tmp_path / "made.json", job_flags.Flags()).spec.mean_bound == KNOWN.norm_bound()
    assert "--dimension" in here("plan", *FLAGS, "--dimension", "4").error_line
    assert "--feature needs --dictionary" in here("plan", *FLAGS[:-2], "--feature", "age").error_line


def test_a_policy_is_tried_with_the_bound_that_follows(here: Here, tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text(json.dumps(JOB), encoding="utf-8")
    suggested = here("policy", "suggest", "job.json", "--analyst", "ada", "--data-set", "cohort")
    assert "dictionary = true" in suggested.out
    assert 'columns = ["sex", "age"]' in suggested.out
    (tmp_path / "as-it-is.toml").write_text(suggested.out, encoding="utf-8")
    as_it_is = ("policy", "check", "as-it-is.toml", "--data-set", "cohort", "--job")
    checked = here(*as_it_is, "job.json")
    assert checked.code == 0
    (columns,) = [line for line in checked.out.splitlines() if names_facts(line, "Columns")]
    assert names_facts(columns, "sex", "age")
    assert "bmi" not in columns
    (tmp_path / "more.json").write_text(json.dumps(JOB | {"features": ["sex", "bmi"]}), encoding="utf-8")
    assert "bmi" in here(*as_it_is, "more.json").out
    assert here(*as_it_is, "more.json").code == 1
    narrow = suggested.out.replace("norm_bound = {", "norm_bound = { least = 5.0, most = 6.0 } #")
    (tmp_path / "policy.toml").write_text(narrow, encoding="utf-8")
    tried = here("policy", "check", "policy.toml", "--job", "job.json", "--data-set", "cohort")
    assert tried.code == 0, tried.out
    assert "shared dictionary" in tried.out


def written(here: Here, folder: Path, *flags: str) -> Path:
    """Write a job from another folder than that of its dictionary."""
    (folder / "jobs").mkdir(exist_ok=True)
    told = here("plan", *flags, "--write", "jobs/fit.json", "--json")
    assert told.code == 0, told.err
    return folder / "jobs" / "fit.json"


@pytest.mark.parametrize("flags", [(*FLAGS, "--feature", "age"), ("job.json",)])
def test_a_written_job_finds_its_dictionary_from_any_folder(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...]
) -> None:
    (tmp_path / "job.json").write_text(json.dumps(JOB), encoding="utf-8")
    job = written(here, tmp_path, *flags)
    raw = json.loads(job.read_text(encoding="utf-8"))
    assert (raw["dictionary_file"], raw["dictionary"]) == ("../study.toml", KNOWN.digest())
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    found = job_files.from_file(Path("..") / "jobs" / "fit.json", job_flags.Flags())
    assert found.dictionary == KNOWN
    assert found.public_bound == found.spec.norm_bound
    again = here("plan", "../jobs/fit.json", "--write", "again.json", "--json")
    assert again.code == 0, again.err
    assert (tmp_path / "elsewhere" / "again.json").read_text(encoding="utf-8") == job.read_text(encoding="utf-8")


def test_a_written_job_whose_dictionary_is_elsewhere_is_complete_without_it(here: Here, tmp_path: Path) -> None:
    job = written(here, tmp_path, *FLAGS)
    whole = job_files.from_file(job, job_flags.Flags())
    (tmp_path / "study.toml").rename(tmp_path / "kept.toml")
    alone = job_files.from_file(job, job_flags.Flags())
    assert (alone.dictionary, alone.dictionary_file, alone.spec) == (None, None, whole.spec)
    told = job_files.from_file(job, job_flags.Flags(dictionary=tmp_path / "kept.toml"))
    assert told.dictionary == KNOWN


def test_a_written_job_refuses_a_dictionary_that_changed(here: Here, tmp_path: Path) -> None:
    job = written(here, tmp_path, *FLAGS)
    (tmp_path / "other.toml").rename(tmp_path / "study.toml")
    with pytest.raises(InvalidParameterError, match=facts("study.toml", KNOWN.digest(), "`dpspca plan --write`")):
        job_files.from_file(job, job_flags.Flags())


@pytest.mark.usefixtures("here")
def test_the_file_of_a_dictionary_is_named_once_and_as_text(tmp_path: Path) -> None:
    with_digest = read(tmp_path, JOB).spec.to_dict()
    for wrong in (3, "", " "):
        with pytest.raises(InvalidParameterError, match=facts("dictionary_file", repr(wrong))):
            read(tmp_path, with_digest | {"dictionary_file": wrong})
    with pytest.raises(InvalidParameterError, match=facts("dictionary_file")):
        read(tmp_path, JOB | {"dictionary_file": "study.toml"})
    without = {key: value for key, value in with_digest.items() if key != "dictionary"}
    with pytest.raises(InvalidParameterError, match=facts("study.toml", "none", KNOWN.digest())):
        read(tmp_path, without | {"dictionary_file": "study.toml"})


@pytest.mark.parametrize("name", ["~study.toml", "C:study.toml"])
def test_a_path_that_would_be_taken_for_another_is_not_written(here: Here, tmp_path: Path, name: str) -> None:
    (tmp_path / "study.toml").rename(tmp_path / name)
    told = here("plan", *FLAGS[:-1], f"./{name}", "--write", "fit.json", "--json")
    assert told.code == 0, told.err
    assert "dictionary_file" not in json.loads((tmp_path / "fit.json").read_text(encoding="utf-8"))


ELSEWHERE = (
    "/etc/passwd",
    "/dev/zero",
    "~/study.toml",
    "~nobody/x",
    "\\\\host\\share\\x",
    "//host/share/x",
    "C:x",
    "C:/x",
)


@pytest.mark.parametrize("path", ELSEWHERE)
def test_t35_the_path_in_a_written_job_leads_from_its_folder_alone(here: Here, tmp_path: Path, path: str) -> None:
    """A job's file may come from anybody. On Windows, a look at a path of another host sends it a hash."""
    job = written(here, tmp_path, *FLAGS)
    raw = json.loads(job.read_text(encoding="utf-8")) | {"dictionary_file": path}
    with pytest.raises(InvalidParameterError, match=facts("dictionary_file", repr(path), "--dictionary FILE")):
        read(tmp_path, raw)


@pytest.mark.parametrize("key", ["dictionary_file", "dictionary"])
@pytest.mark.parametrize("what", ["pipe", "folder", "huge"])
def test_t35_only_a_file_of_bounded_size_is_opened_for_a_job(here: Here, tmp_path: Path, key: str, what: str) -> None:
    raw = JOB if key == "dictionary" else json.loads(written(here, tmp_path, *FLAGS).read_text(encoding="utf-8"))
    place = tmp_path / what
    if what == "pipe":
        os.mkfifo(place)  # to open it would wait without end
    elif what == "folder":
        place.mkdir()
    else:
        with place.open("wb") as file:
            file.truncate(job_dictionaries.MOST_BYTES + 1)
    with pytest.raises(InvalidParameterError, match=facts(key, job_dictionaries.MOST_BYTES)):
        read(tmp_path, raw | {key: what})


def test_t35_a_device_that_a_dictionary_names_is_not_opened(tmp_path: Path, here: Here) -> None:
    raw = json.loads(written(here, tmp_path, *FLAGS).read_text(encoding="utf-8"))
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "study.toml").write_text(f'{STUDY}\n[concepts]\nfile = "pipe"\n', encoding="utf-8")
    with pytest.raises(InvalidParameterError, match=facts("study.toml", tmp_path / "pipe")):
        read_dictionary(tmp_path / "study.toml")
    for job in (JOB, raw | {"dictionary_file": "study.toml"}):
        with pytest.raises(InvalidParameterError, match=facts("study.toml", "`dpspca dictionary check")):
            read(tmp_path, job)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.toml", 'password = "hunter2"\n[hunter2]\n'),
        ("b.toml", 'format = "hunter2"\n[features.hunter2]\nkind = "hunter2"\n'),
        ("c.json", '"hunter2"'),
        ("d.json", '{"hunter2": 1, "hunter2": 2}'),
    ],
)
def test_an_error_quotes_nothing_of_a_file_that_is_not_a_dictionary(
    here: Here, tmp_path: Path, name: str, content: str
) -> None:
    """A steward checks the jobs of others beside the rows, and may send an error on."""
    job = written(here, tmp_path, *FLAGS)
    (tmp_path / name).write_text(content, encoding="utf-8")
    with_digest = json.loads(job.read_text(encoding="utf-8"))
    for raw in (with_digest | {"dictionary_file": name}, JOB | {"dictionary": name}):
        with pytest.raises(InvalidParameterError, match=facts(name, "`dpspca dictionary check")) as refused:
            read(tmp_path, raw)
        assert "hunter2" not in str(refused.value)


@pytest.mark.usefixtures("here")
def test_a_path_that_is_none_leads_to_nothing_or_is_refused(tmp_path: Path) -> None:
    with_digest = read(tmp_path, JOB).spec.to_dict()
    for path in ("a\0b", "x" * 5000, "loop.toml"):
        (tmp_path / "loop.toml").unlink(missing_ok=True)
        (tmp_path / "loop.toml").symlink_to("loop.toml")
        assert read(tmp_path, with_digest | {"dictionary_file": path}).dictionary is None
    with pytest.raises(InvalidParameterError, match=facts("dictionary", "'~nobody-of-this-name/x'")):
        read(tmp_path, JOB | {"dictionary": "~nobody-of-this-name/x"})


def test_a_policy_admits_a_written_job_as_it_admits_the_job(here: Here, tmp_path: Path) -> None:
    """Its norm bound follows from the dictionary, as the provider finds, whatever range the policy has."""
    (tmp_path / "job.json").write_text(json.dumps(JOB), encoding="utf-8")
    written(here, tmp_path, "job.json")
    suggested = here("policy", "suggest", "jobs/fit.json", "--analyst", "ada", "--data-set", "cohort")
    narrow = suggested.out.replace("norm_bound = {", "norm_bound = { least = 5.0, most = 6.0 } #")
    (tmp_path / "policy.toml").write_text(narrow, encoding="utf-8")
    assert here("policy", "check", "policy.toml", "--job", "jobs/fit.json", "--data-set", "cohort").code == 0
