"""Every benchmark runs and prints its table as JSON, those of many seconds at night. Numbers depend on the machine."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHES = Path(__file__).parents[2] / "bench"

pytestmark = pytest.mark.skipif(not BENCHES.is_dir(), reason="the benchmarks are not part of the wheel")


def measured(name: str, *flags: str) -> Any:
    script = BENCHES / f"{name}.py"
    command = [sys.executable, "-W", "error", str(script), "--quick", "--json", *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603  # our own script
    return json.loads(done.stdout)


@pytest.mark.nightly
def test_round_cost_reports_gram_matrix_and_row_pass() -> None:
    result = measured("round_cost")
    assert set(result) == {"gram", "stream", "paper_table_1"}
    parts = ("sparse", "dense", "plain", "gate", "noise", "combine", "next_basis", "round", "first_round")
    for row in result["gram"]:
        assert all(row[f"{part}_ms"] > 0 for part in parts)
    for row in result["stream"]:
        assert row["same_bits"] is True
        assert row["speedup"] == pytest.approx(row["plain_seconds"] / row["ours_seconds"])
        assert row["preparation_seconds"] > 0
    assert [row["rows"].split()[0] for row in result["stream"]] == ["dense", "dense", "CSR"]
    assert set(result["paper_table_1"]["DPS-PCA"].values()) == {"< 1 ms"}


@pytest.mark.slow
def test_shapes_compare_passes_with_plain_products() -> None:
    result = measured("shapes")
    for row in result["shapes"]:
        assert row["ratio"] == pytest.approx(row["seconds"] / row["plain_seconds"])
        assert row["one_thread_ratio"] == pytest.approx(row["one_thread_seconds"] / row["one_thread_plain_seconds"])
        assert min(row["noise"], row["one_thread_noise"]) >= 1
    assert result["summary"]["ratio"]["largest"] == max(row["ratio"] for row in result["shapes"])
    assert result["machine"]["kernels"]


@pytest.mark.slow
def test_rounds_reports_the_error_for_every_budget() -> None:
    results = measured("rounds")
    for row in results:
        errors = row["mean_errors"]
        assert all(0 < error < 5**0.5 for error in errors.values())
        assert row["rule_error"] == errors[str(row["rule_rounds"])]
        assert errors[str(row["best_rounds"])] == min(errors.values())
    by_mu = sorted(results, key=lambda row: row["mu"])
    assert by_mu[0]["rule_error"] > 3 * by_mu[-1]["rule_error"]


@pytest.mark.slow
def test_linalg_compares_the_thin_qr_with_numpy() -> None:
    results = measured("linalg")
    assert [row["matrix"] for row in results] == ["independent", "dependent"]
    for row in results:
        assert row["speedup"] == pytest.approx(row["numpy_seconds"] / row["thin_qr_seconds"])
        assert row["departure_from_orthonormal"] < 1e-12


@pytest.mark.nightly
def test_noise_is_compared_with_opendp() -> None:
    results = measured("noise")
    for law in ("gaussian", "laplace"):
        for row in results[law].values():
            assert row["ratio"] == pytest.approx(row["ours"] / row["opendp"])
            assert row["tables_ms"] > 0


@pytest.mark.nightly
def test_federation_is_compared_with_bare_grpc() -> None:
    result = measured("federation")
    assert set(result) == {"parts", "small", "large", "idle", "many"}
    for row in result["small"].values():
        assert row["ratio"] == pytest.approx(row["job_ms"] / row["floor_ms"])
        assert row["ratio_without_commits"] == pytest.approx(row["job_ms"] / row["floor_without_commits_ms"])
        assert row["floor_without_commits_ms"] > 0
    calls = {part["part"]: part["calls"] for part in result["parts"]}
    providers, rounds = 2, 4
    assert calls["sign"] == 1
    assert calls["verify"] == 1 + providers
    assert calls["product"] == calls["noise"] == providers * rounds
    for row in result["large"].values():
        assert row["ratio"] == pytest.approx(row["round_seconds"] / row["floor_round_seconds"])
        assert row["coordinator_peak_megabytes"] > row["answer_megabytes"]
    assert result["idle"]["share_of_a_core"] >= 0
    assert result["many"]["job_ms"] > 0


@pytest.mark.nightly
def test_sparse_reports_time_and_memory_of_every_job_and_size() -> None:
    results = measured("sparse")
    assert [row["job"] for row in results] == ["rows alone", "noisy-power", "range-projection"] * 2
    assert all(row["peak_gib"] > 0 for row in results)
    assert all((row["ns"] is None) == (row["job"] == "rows alone") for row in results)


@pytest.mark.nightly
def test_accuracy_compares_the_methods_on_the_same_rows() -> None:
    results = {row["data"]: row for row in measured("accuracy")}
    for row in results.values():
        errors = row["median_errors"]
        assert errors["oracle"] < errors["auto"] < errors["dps-pca"]
        assert row["seeds"] == 2
    assert results["P"]["median_errors"]["auto"] < results["P"]["median_errors"]["analyze-gauss"] / 4


@pytest.mark.nightly
def test_accuracy_varies_one_thing_at_a_time_and_goes_on_where_it_broke_off(tmp_path: Path) -> None:
    results, picture = tmp_path / "figures.csv", tmp_path / "figures.png"
    lists = ["--designs", "D", "--methods", "auto", "--owners", "1,8", "--bound", "1,8", "--out", str(results)]
    first = measured("accuracy", *lists, "--epsilon", "1")
    figures = results.read_text(encoding="utf-8")
    rows = measured("accuracy", *lists, "--epsilon", "1,.2", "--picture", str(picture))
    errors = {(row["epsilon"], row["owners"], row["bound"]): row["median_errors"]["auto"] for row in rows}
    assert set(errors) == {(1, 1, 1), (0.2, 1, 1), (1, 8, 1), (1, 1, 8)}
    assert errors[1, 1, 1] < min(errors[0.2, 1, 1], errors[1, 8, 1])
    assert [row for row in rows if row["epsilon"] == 1] == first
    assert results.read_text(encoding="utf-8").startswith(figures)
    assert picture.stat().st_size > 0


@pytest.mark.slow
def test_forecasts_agree_with_runs() -> None:
    """All seeds are fixed: this holds in every run or in none."""
    result = measured("forecast")
    assert len(result["settings"]) == result["clear"] + result["near_chance"] == 5
    assert result["clear_right"] == result["clear"] == 3
    assert result["near_chance_right"] == result["near_chance"]
    for row in result["settings"]:
        assert 0 < row["forecast"] <= row["chance"]
        assert row["right"]
        assert row["forecast_seconds"] < 10


@pytest.mark.slow
def test_forecasts_of_captured_variance_agree_with_runs_on_a_table() -> None:
    """All seeds are fixed here too."""
    rows = measured("forecast", "--tables")["tables"]
    assert len(rows) == 8
    assert {row["table"] for row in rows} == {"diabetes"}
    for row in rows:
        assert abs(row["with_hints"] - row["median_captured"]) < 0.1
        assert 0 < row["without_hints"] < 1


@pytest.mark.slow
def test_forecasts_of_answers_and_bytes_agree_with_a_federation() -> None:
    rows = measured("forecast", "--costs", "--runs", "1")["costs"]
    assert [row["method"] for row in rows] == ["auto", "power-iteration"]
    for row in rows:
        forecast, took = row["forecast"], row["runs"]
        assert forecast["answers"] == took["answers"]
        assert took["bytes"] / 2 < forecast["bytes"] < 2 * took["bytes"]
        assert min(forecast["seconds"], took["seconds"]) > 0


@pytest.mark.slow
def test_centering_compares_a_mean_that_is_found_with_the_true_one() -> None:
    (row,) = measured("centering")
    assert row["chosen"] in {"private", "pairs"}
    shares = row["captured"]
    assert shares["none"] < min(shares["private"], shares["auto"]) - 0.3
    assert 0.95 < min(shares["private"], shares["auto"]) <= max(shares.values()) < 1.0001


def test_unequal_compares_weights_with_equal_ones() -> None:
    results = {row["sizes"]: row for row in measured("unequal")}
    assert {sizes: row["median_ratio"] == 1 for sizes, row in results.items()} == {
        "one-large": False,
        "four-equal": True,
        "geometric": False,
    }
    for sizes in ("one-large", "geometric"):
        assert results[sizes]["median_errors"]["auto"] < results[sizes]["median_errors"]["equal"]


@pytest.mark.slow
def test_untuned_compares_the_default_with_every_other_method() -> None:
    (row,) = measured("untuned", "--methods", "auto;analyze-gauss;ppca")
    errors = row["median_errors"]
    assert set(errors) == {"oracle", "auto", "analyze-gauss", "ppca"}
    assert 0 < errors["oracle"] < errors["auto"] < errors["ppca"] < 1
    assert row["best_other"] == "analyze-gauss"
    assert abs(row["behind"]) < 0.1


@pytest.mark.nightly
def test_large_data_stays_within_its_memory() -> None:
    result = measured("large_data")
    assert {line["source"] for line in result["lines"]} == {".parquet", ".npy"}
    for line in result["lines"]:
        assert line["seconds"] > 0
        assert line["step"] == "decode" or line["of_cap"] <= 1.2
