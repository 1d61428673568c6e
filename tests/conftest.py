"""Settings for all tests."""

import os
import shutil
import signal
from collections.abc import Iterator
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from forked_programs import fork_programs
from hypothesis import settings
from required_programs import require_programs
from timeouts import use_steady_loops

import dpspca  # noqa: F401  # before any test imports gRPC, so that it is held to TLS 1.3

# Lets scikit-learn's array check run instead of skipping; it has to be set before scipy is imported.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

# As for the command itself: commands run in a process of tests, where other connections end meanwhile. It has to be set
# before the first connection.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

# Most processes of tests live shorter than compiled kernels take to load. Tests of what kernels compute switch them on
# (``compiled_or_not`` below).
os.environ.setdefault("DPSPCA_COMPILED", "off")

# Several tests run at once, and threads of linear algebra would take each other's processors: a quarter of the time of
# tests with jobs. It has to be set before numpy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Files of tests lie in memory where there is room: thousands of keys and ledgers are forced to the disk otherwise.
_MEMORY = Path("/dev/shm")  # noqa: S108  # pytest makes a folder in it that is ours alone
if _MEMORY.is_mount() and shutil.disk_usage(_MEMORY).free > 4 * 2**30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))

# A shell starts what runs in the background deaf to interrupts, and so would be the programs that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Deterministic examples: a property that fails once fails on every run. HYPOTHESIS_PROFILE chooses other profiles, with
# other examples every time: "night" for `make nightly`, and "thorough" for changes of what a property is about.
settings.register_profile("dpspca", deadline=None, derandomize=True, max_examples=40)
settings.register_profile("night", deadline=None, max_examples=400, print_blob=True)
settings.register_profile("thorough", deadline=None, max_examples=2000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dpspca"))


# A machine whose neighbours are busy stands still for seconds; nobody is late for that.
use_steady_loops()

# Loading our programs takes longer than most of what tests have them do.
fork_programs()


def pytest_configure() -> None:
    """Refuse to run, instead of skipping tests, without the programs that the environment requires."""
    require_programs(os.environ)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Let ``-n auto`` be three workers for two processors: a quarter of the time, tests wait for something else.

    Slow tests wait for daemons and containers nearly half of the time, so there are four.
    """
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(2, 2 * processors if config.getoption("markexpr").startswith("slow") else 3 * processors // 2)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Load only files that have the mark, for ``-m "slow ..."`` and ``-m nightly``: all take every worker long."""
    mark = config.getoption("markexpr").partition(" ")[0]
    if mark not in {"slow", "nightly"} or collection_path.suffix != ".py":
        return None
    return f"mark.{mark}" not in collection_path.read_text(encoding="utf-8") or None


@pytest.fixture(scope="session", autouse=True)
def _many_tables_of_noise() -> None:
    """Remember more tables of noise than a daemon does: tests have hundreds of jobs in one process, of few kinds."""
    from dpspca.common.privacy import noise  # noqa: PLC0415  # after what scipy has to be told

    noise._gaussian_table = lru_cache(maxsize=128)(noise._gaussian_table.__wrapped__)


@pytest.fixture(scope="module", params=["compiled", "numpy"])
def compiled_or_not(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run the tests of a module that uses this twice: with compiled kernels, and with numpy alone."""
    from dpspca.provider.kernels import SWITCH, forget, load  # noqa: PLC0415  # most tests need no provider

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, "off" if request.param == "numpy" else "on")
        forget()
        if request.param == "compiled" and find_spec("numba") is None:
            pytest.skip("There is no numba here.")
        assert load() == (request.param == "compiled")
        yield
    forget()
