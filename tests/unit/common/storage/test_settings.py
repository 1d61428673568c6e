"""Settings: what is wrong with them is told key by key, and the samples that we ship are settings."""

from pathlib import Path

import pytest
from facts import facts, names_facts

from dpspca.cli.arguments.job_files import from_file
from dpspca.cli.arguments.job_flags import Flags
from dpspca.common.errors import InvalidInputError, InvalidParameterError
from dpspca.common.job import Span
from dpspca.common.storage.settings import (
    Address,
    AnalystSettings,
    CoordinatorSettings,
    DatabaseUrl,
    ProviderSettings,
    faults,
    kind_of,
    read_any_settings,
    read_settings,
    read_toml,
)

SAMPLES = Path(__file__).parents[4] / "deploy" / "samples"
KINDS = {"coordinator": CoordinatorSettings, "provider": ProviderSettings, "analyst": AnalystSettings}


@pytest.mark.parametrize("program", KINDS)
def test_every_sample_of_settings_is_understood(program: str) -> None:
    read = read_any_settings(SAMPLES / f"{program}.toml")
    assert isinstance(read, KINDS[program])
    assert read.identity.parent == SAMPLES


def test_the_sample_of_a_job_is_a_job() -> None:
    order = from_file(SAMPLES / "job.toml", Flags())
    assert order.data_set == "cohort"
    assert order.providers is None
    assert order.spec.minimum_providers == 2


def test_there_is_a_sample_for_every_program() -> None:
    assert {path.stem for path in SAMPLES.iterdir()} == {*KINDS, "dictionary", "job", "policy", "study"}


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("127.0.0.1:0", "127.0.0.1", 0), ("[::1]:7443", "::1", 7443), ("hub.example-town.org:65535", None, 65535)],
)
def test_an_address_is_a_host_and_a_port(text: str, host: str | None, port: int) -> None:
    address = Address.parse(text)
    assert (address.host, address.port) == (host or text.rpartition(":")[0], port)


@pytest.mark.parametrize(
    "text", ["", "7443", ":7443", "host", "host:", "host:65536", "::1:7443", "a b:1", "https://a:1"]
)
def test_text_that_is_not_an_address_is_refused_with_an_example(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(f'coordinator = "{text}"\nidentity = "a"\n')
    with pytest.raises(InvalidParameterError, match=facts("coordinator", f"'{text}'", "HOST:PORT")):
        read_settings(AnalystSettings, tmp_path / "a.toml")


def coordinator_with(line: str, folder: Path) -> CoordinatorSettings:
    path = folder / "hub.toml"
    path.write_text(f'listen = "127.0.0.1:0"\nidentity = "hub"\nrevocations = "revoked.pem"\n{line}\n')
    return read_settings(CoordinatorSettings, path)


def test_settings_limit_the_results_that_a_coordinator_keeps(tmp_path: Path) -> None:
    assert coordinator_with("result_mebibytes = 50_000", tmp_path).result_mebibytes == 50_000
    assert coordinator_with("", tmp_path).result_mebibytes is None


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "true", '"1024"', "2_000_000_000"])
def test_room_for_results_that_is_none_is_refused(value: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidParameterError, match=facts("result_mebibytes", 2**30)):
        coordinator_with(f"result_mebibytes = {value}", tmp_path)


@pytest.mark.parametrize(
    ("listen", "reached"),
    [("0.0.0.0:7443", "127.0.0.1:7443"), ("[::]:7443", "[::1]:7443"), ("10.1.2.3:7443", "10.1.2.3:7443")],
)
def test_an_address_that_means_everywhere_is_reached_on_loopback(listen: str, reached: str) -> None:
    assert Address.parse(listen).from_here == reached


def test_all_faults_are_listed_and_not_only_the_first(tmp_path: Path) -> None:
    path = tmp_path / "north.toml"
    path.write_text('coordinator = "nowhere"\ncolour = "red"\nrevocations = 3\n[data_sets]\ncohort = 4\n')
    raw = read_toml(path)
    assert kind_of(raw) is ProviderSettings
    told = "\n".join(map(str, faults(ProviderSettings, path, raw)))
    for part in ("unknown key 'colour'", "lacks identity", "nowhere", "revocations is 3", "data_sets.cohort is 4"):
        assert part in told
    assert len(told.splitlines()) == 5
    with pytest.raises(InvalidInputError) as caught:
        read_settings(ProviderSettings, path)
    assert str(caught.value) == told.replace("\n", " ")


@pytest.mark.parametrize(
    ("told", "meant"),
    [
        ("", None),
        ('journal = "state/journal.db"', Path("state/journal.db")),
        ('journal = "/var/lib/journal.db"', Path("/var/lib/journal.db")),
        ('journal = "postgresql://hub@db.example/journal"', DatabaseUrl("postgresql://hub@db.example/journal")),
    ],
)
def test_a_journal_is_a_file_or_a_database(told: str, meant: Path | DatabaseUrl | None, tmp_path: Path) -> None:
    path = tmp_path / "hub.toml"
    path.write_text(f'listen = "127.0.0.1:0"\nidentity = "hub"\nrevocations = "revoked.pem"\n{told}\n')
    read = read_settings(CoordinatorSettings, path).journal
    assert read == (tmp_path / meant if isinstance(meant, Path) else meant)
    assert isinstance(read, DatabaseUrl) == isinstance(meant, DatabaseUrl)


def test_another_kind_of_database_is_refused_without_its_password(tmp_path: Path) -> None:
    path = tmp_path / "hub.toml"
    path.write_text(
        'listen = "127.0.0.1:0"\nidentity = "hub"\nrevocations = "revoked.pem"\njournal = "mysql://hub:swordfish@db/x"\n'
    )
    with pytest.raises(InvalidParameterError, match=facts("journal", "'mysql'", "`dpspca config sample`")) as caught:
        read_settings(CoordinatorSettings, path)
    assert "swordfish" not in str(caught.value)


def provider_with(lines: str, folder: Path) -> Path:
    path = folder / "north.toml"
    path.write_text(
        'coordinator = "127.0.0.1:1"\nidentity = "north"\nrevocations = "revoked.pem"\npolicy = "policy.toml"\n'
        f'[data_sets]\nratings = "ratings.npz"\n{lines}\n'
    )
    return path


def test_settings_may_name_the_rows_of_a_table_that_are_a_providers_own(tmp_path: Path) -> None:
    told = provider_with("[spans]\nratings = { start = 0, rows = 1200, of = 4800 }", tmp_path)
    assert read_settings(ProviderSettings, told).spans == {"ratings": Span(0, 1200, 4800)}
    assert read_settings(ProviderSettings, provider_with("", tmp_path)).spans == {}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (
            "ratings = { start = 4000, rows = 1200, of = 4800 }",
            "spans.ratings: 1200 rows from row 4000 on end at row 5199",
        ),
        ("ratings = { start = 0, rows = 0, of = 4800 }", "the number of own rows, is 0"),
        ("ratings = { start = 0, rows = 1.5, of = 4800 }", "spans.ratings.rows is 1.5"),
        ("ratings = { start = 0, rows = 1200 }", "spans.ratings lacks of"),
        ("ratings = { start = 0, rows = 1, of = 2, to = 3 }", "spans.ratings has an unknown key 'to'"),
        ("ratings = [0, 1200, 4800]", "spans.ratings is ["),
        ("cohort = { start = 0, rows = 1200, of = 4800 }", "spans names 'cohort', which is no data set"),
    ],
)
def test_a_span_that_makes_no_sense_is_refused_by_name(line: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        read_settings(ProviderSettings, provider_with(f"[spans]\n{line}", tmp_path))
    assert why in str(caught.value)


def test_persons_of_a_data_set_that_is_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameterError, match=facts("persons", "'cohort'", "ratings")):
        read_settings(ProviderSettings, provider_with('[persons]\ncohort = "whose.txt"', tmp_path))


def test_data_sets_may_arrive_in_folders_and_each_has_one_name(tmp_path: Path) -> None:
    read = read_settings(ProviderSettings, provider_with('[arriving]\nmeasurements = "measurements"', tmp_path))
    assert read.arriving == {"measurements": tmp_path / "measurements"}
    assert read.names == {"ratings", "measurements"}
    assert read_settings(ProviderSettings, provider_with("", tmp_path)).names == {"ratings"}
    with pytest.raises(InvalidParameterError, match=facts("'ratings'", "arriving", "data_sets")):
        read_settings(ProviderSettings, provider_with('[arriving]\nratings = "ratings"', tmp_path))
    with pytest.raises(InvalidParameterError, match=facts("arriving", "'measurements'")):
        read_settings(ProviderSettings, _top(provider_with("", tmp_path), 'arriving = "measurements"'))


def test_data_sets_may_be_left_out_where_others_arrive_and_not_both(tmp_path: Path) -> None:
    path = provider_with("", tmp_path)
    plain = path.read_text().partition("[data_sets]")[0]
    path.write_text(f'{plain}[arriving]\nmeasurements = "measurements"\n')
    read = read_settings(ProviderSettings, path)
    assert (read.data_sets, read.names) == ({}, {"measurements"})
    for nothing in ("", "[data_sets]\n", "[arriving]\n", "[data_sets]\n[arriving]\n"):
        path.write_text(plain + nothing)
        with pytest.raises(InvalidParameterError, match=facts("data_sets", "arriving", "`dpspca config sample`")):
            read_settings(ProviderSettings, path)


def test_keys_that_do_not_apply_to_arriving_rows_are_refused(tmp_path: Path) -> None:
    arriving = '[arriving]\nmeasurements = "measurements"\n'
    with pytest.raises(InvalidParameterError, match=facts("persons", "'measurements'", "data_sets")):
        read_settings(ProviderSettings, provider_with(f'{arriving}[persons]\nmeasurements = "whose.txt"', tmp_path))
    told = f"{arriving}[spans]\nmeasurements = {{ start = 0, rows = 2, of = 4 }}"
    with pytest.raises(InvalidParameterError, match=facts("spans", "'measurements'", "data_sets")):
        read_settings(ProviderSettings, provider_with(told, tmp_path))


def test_a_data_set_with_persons_and_a_span_is_refused(tmp_path: Path) -> None:
    told = '[persons]\nratings = "whose.txt"\n[spans]\nratings = { start = 0, rows = 2, of = 4 }'
    with pytest.raises(InvalidParameterError, match=facts("'ratings'", "persons", "span")):
        read_settings(ProviderSettings, provider_with(told, tmp_path))


@pytest.mark.parametrize(
    ("lines", "names"),
    [
        ('again = "ratings.npz"', "'ratings' under data_sets and 'again' under data_sets"),
        ('again = "./there/../ratings.npz"', "'ratings' under data_sets and 'again' under data_sets"),
        ('again = "link.npz"', "'ratings' under data_sets and 'again' under data_sets"),
        ('again = "loop/ratings.npz"', "'ratings' under data_sets and 'again' under data_sets"),
        ('again = "there"\n[arriving]\nnew = "there"', "'again' under data_sets and 'new' under arriving"),
        ('again = "there"\n[arriving]\nnew = "there/"', "'again' under data_sets and 'new' under arriving"),
        ('[arriving]\nnew = "there"\nnewer = "loop/there"', "'new' under arriving and 'newer' under arriving"),
        ('again = "there/a.npy"\n[arriving]\nnew = "there"', "'again' under data_sets and 'new' under arriving"),
        ('whole = "there"\nagain = "there/link.npz"', "'whole' under data_sets and 'again' under data_sets"),
    ],
)
def test_the_same_rows_under_two_names_are_refused(lines: str, names: str, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "link.npz").symlink_to(tmp_path / "ratings.npz")
    (tmp_path / "there" / "link.npz").symlink_to(tmp_path / "elsewhere.npz")
    path = provider_with(lines, tmp_path)
    told = [str(each) for each in faults(ProviderSettings, path, read_toml(path))]
    assert [f"{names} hold the same rows. Rows have one budget" in each for each in told] == [True]


def test_files_of_one_folder_and_folders_of_one_folder_are_other_rows(tmp_path: Path) -> None:
    lines = 'more = "more.npz"\n[arriving]\nnew = "new"\nnewer = "newer"'
    assert read_settings(ProviderSettings, provider_with(lines, tmp_path)).names == {"ratings", "more", "new", "newer"}


def test_a_path_in_a_circle_or_none_stops_nothing_from_being_told(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    path = provider_with('round = "circle"\nnone = "a\\u0000b"\n[arriving]\nratings = "r"', tmp_path)
    told = [str(each) for each in faults(ProviderSettings, path, read_toml(path))]
    assert len(told) == 1
    assert names_facts(told[0], "'ratings'", "arriving", "data_sets")


def _top(path: Path, line: str) -> Path:
    path.write_text(f"{line}\n{path.read_text()}")
    return path


def test_a_bound_on_the_entries_of_a_row_belongs_to_a_data_set(tmp_path: Path) -> None:
    def read(lines: str) -> ProviderSettings:
        return read_settings(ProviderSettings, provider_with(lines, tmp_path))

    assert read("[row_entries]\nratings = 40").row_entries == {"ratings": 40}
    with pytest.raises(InvalidParameterError, match=facts("row_entries", "'labs'", "ratings")):
        read("[row_entries]\nlabs = 40")
    with pytest.raises(InvalidParameterError, match=facts("row_entries.ratings", 0)):
        read("[row_entries]\nratings = 0")
    with pytest.raises(InvalidParameterError, match=facts("'ratings'", "row_entries", "span")):
        read("[spans]\nratings = { start = 0, rows = 2, of = 4 }\n[row_entries]\nratings = 4")
