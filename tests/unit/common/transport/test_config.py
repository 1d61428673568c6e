"""Settings: what is wrong with them is told key by key, and the samples that we ship are settings."""

from pathlib import Path

import pytest

from dpspca.cli.questions import Flags, from_file
from dpspca.common.errors import InvalidParameterError
from dpspca.common.transport.config import (
    Address,
    AnalystConfig,
    CoordinatorConfig,
    ProviderConfig,
    faults,
    kind_of,
    read_any_config,
    read_config,
    read_toml,
)

SAMPLES = Path(__file__).parents[4] / "deploy" / "samples"
KINDS = {"coordinator": CoordinatorConfig, "provider": ProviderConfig, "analyst": AnalystConfig}


@pytest.mark.parametrize("program", KINDS)
def test_every_sample_of_settings_is_understood(program: str) -> None:
    read = read_any_config(SAMPLES / f"{program}.toml")
    assert isinstance(read, KINDS[program])
    assert read.identity.parent == SAMPLES


def test_the_sample_of_a_job_is_a_job() -> None:
    order = from_file(SAMPLES / "job.toml", Flags())
    assert order.data_set == "cohort"
    assert order.providers is None
    assert order.spec.minimum_parties == 2


def test_there_is_a_sample_for_every_program() -> None:
    assert {path.stem for path in SAMPLES.iterdir()} == {*KINDS, "job"}


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
def test_what_is_no_address_is_refused_with_an_example(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(f'coordinator = "{text}"\nidentity = "a"\n')
    with pytest.raises(InvalidParameterError, match=r"coordinator: .* is no address. Write HOST:PORT"):
        read_config(AnalystConfig, tmp_path / "a.toml")


@pytest.mark.parametrize(
    ("listen", "reached"),
    [("0.0.0.0:7443", "127.0.0.1:7443"), ("[::]:7443", "[::1]:7443"), ("10.1.2.3:7443", "10.1.2.3:7443")],
)
def test_an_address_that_means_everywhere_is_reached_on_loopback(listen: str, reached: str) -> None:
    assert Address.parse(listen).from_here == reached


def test_everything_that_is_wrong_is_told_and_not_the_first_fault_alone(tmp_path: Path) -> None:
    path = tmp_path / "north.toml"
    path.write_text('coordinator = "nowhere"\ncolour = "red"\nrevocations = 3\n[data_sets]\ncohort = 4\n')
    raw = read_toml(path)
    assert kind_of(raw) is ProviderConfig
    told = "\n".join(map(str, faults(ProviderConfig, path, raw)))
    for part in ("does not know colour", "lacks identity", "nowhere", "revocations is 3", "data_sets is {'cohort': 4}"):
        assert part in told
    assert len(told.splitlines()) == 5
