"""The code keeps its structural rules: purity, public names, secret randomness, sizes and locked dependencies."""

import ast
import json
import re
import subprocess
import sys
import tomllib
import zipfile
from collections import Counter
from hashlib import sha256
from pathlib import Path

import pytest
from facts import names_facts

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


MOST_FILES = 26
MOST_LINES, MOST_LINES_OF_A_FUNCTION = 400, 50


def test_everything_in_common_but_its_edge_is_listed_as_pure() -> None:
    contracts = {contract["id"]: contract for contract in SETTINGS["tool"]["importlinter"]["contracts"]}
    listed = {name.removeprefix("dpspca.common.") for name in contracts["pure-common"]["source_modules"]}
    there = {
        path.stem for path in (ROOT / "common").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert listed == there - {"__init__", "storage", "transport", "trust"}


def test_imports_use_only_the_public_names_of_packages() -> None:
    """Outside a package, its names come from the package itself, which lists them in ``__all__``."""
    doors = {
        _dotted(path.parent): set(_listed(path))
        for folder in LIBRARY
        for path in ROOT.glob(f"{folder}/*/**/__init__.py")
    }
    assert doors
    for path in (path for folder in LIBRARY for path in (ROOT / folder).rglob("*.py")):
        inside = _dotted(path.parent)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                assert not [each.name for each in node.names if each.name.startswith("dpspca.")], path
            if isinstance(node, ast.ImportFrom):
                assert node.module or node.level == 1, path
            if isinstance(node, ast.ImportFrom) and node.module:
                module = f"{inside}.{node.module}" if node.level else node.module
                assert node.level <= 1, (path, node.module)
                closed = [each for each in _within(module) if each in doors and each not in _within(inside)]
                if closed:
                    assert module == closed[0], f"{path} reaches past the door of {closed[0]}: {module}"
                    assert {each.name for each in node.names} <= doors[closed[0]], (path, module)


def _dotted(folder: Path) -> str:
    return ".".join(["dpspca", *folder.relative_to(ROOT).parts])


def _within(module: str) -> list[str]:
    """Return all packages that a module is in, from the outermost to itself."""
    parts = module.split(".")
    return [".".join(parts[: length + 1]) for length in range(len(parts))]


def _listed(door: Path) -> list[str]:
    """Read what a package exports."""
    for node in ast.parse(door.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__":
            return [str(name) for name in ast.literal_eval(node.value)]
    return []


def test_t21_no_release_path_uses_a_generator_that_is_not_cryptographic() -> None:
    """A provider draws nothing from the generators of numpy or of the standard library."""
    for path in (*(ROOT / "provider").rglob("*.py"), *(ROOT / "common" / "privacy").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        assert "np.random" not in text, path
        assert "import random" not in text, path


LIBRARY = ("common", "provider", "server", "client", "cli")
MAKERS = {
    "os.urandom(": {"provider/release/entropy.py"},
    "keyed_stream(": {"common/privacy/keystream.py", "provider/release/entropy.py"},
    "KeyStream(": {"common/privacy/keystream.py", "common/privacy/directions.py"},
    "KeyStream.repeatable(": {"common/privacy/keystream.py"},
    "repeatable_entropy(": {"common/privacy/keystream.py", "client/simulation.py"},
    "Draw(": {"provider/release/responder.py", "client/audit/answers.py"},
}
"""Who may make random words, or ask for them by a draw's name."""


@pytest.mark.parametrize("maker", MAKERS)
def test_random_words_for_a_release_are_made_in_one_place(maker: str) -> None:
    """All random words of a release come from ``entropy(draw)``, with a draw that is fully named."""
    found = {
        path.relative_to(ROOT).as_posix()
        for folder in LIBRARY
        for path in (ROOT / folder).rglob("*.py")
        if re.search(r"(?<![A-Za-z_])" + re.escape(maker), path.read_text(encoding="utf-8"))
    }
    assert found == MAKERS[maker]


def test_no_object_keeps_random_words_in_a_field() -> None:
    """A copy of the process would also hold it, so a word source is an argument and never a field."""
    for path in (path for folder in LIBRARY for path in (ROOT / folder).rglob("*.py")):
        for part in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(part, ast.ClassDef):
                fields = [each for each in part.body if isinstance(each, ast.AnnAssign)]
                assert not any(_is_source(each.annotation) for each in fields), (path, part.name)
            elif isinstance(part, ast.FunctionDef):
                sources = {each.arg for each in _arguments(part) if each.annotation and _is_source(each.annotation)}
                assert not (sources and part.name == "__init__"), (path, part.lineno)
                assert not sources & _names_in_fields(part), (path, part.lineno)


def _arguments(function: ast.FunctionDef) -> list[ast.arg]:
    return [*function.args.args, *function.args.kwonlyargs]


def _names_in_fields(function: ast.FunctionDef) -> set[str]:
    """Return the names that a function stores in a field. A call on a name (``words.words(8)``) does not store it."""
    assigned = [each for each in ast.walk(function) if isinstance(each, ast.Assign)]
    kept = [each.value for each in assigned if any(isinstance(target, ast.Attribute) for target in each.targets)]
    names = [each for value in kept for each in ast.walk(value) if isinstance(each, ast.Name)]
    asked = [each.value for value in kept for each in ast.walk(value) if isinstance(each, ast.Attribute)]
    return {each.id for each in names if each not in asked}


def _is_source(annotation: ast.expr) -> bool:
    """Return whether an annotation, quoted or not, is a source of random words, not a function that makes one."""
    return bool({"WordSource", "KeyStream"} & set(re.findall(r"\w+", ast.unparse(annotation))))


def test_t36_nothing_is_stored_or_sent_as_a_pickle() -> None:
    for folder in ("common", "provider", "server", "client", "cli"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            assert "import pickle" not in text, path
            assert "allow_pickle=True" not in text, path


def test_no_file_is_long_and_no_function_very_long() -> None:
    """Flags of a command are its function's arguments, so only the lines of a body count."""
    for folder in LIBRARY:
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            assert len(text.splitlines()) <= MOST_LINES, path
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    first, last = node.body[0].lineno, node.body[-1].end_lineno or 0
                    assert last - first < MOST_LINES_OF_A_FUNCTION, (path, node.name)


def test_no_folder_holds_more_files_than_a_reader_can_look_through() -> None:
    found = Counter(path.parent for top in (*LIBRARY, "tests", "bench") for path in (ROOT / top).rglob("*.py"))
    crowded = {folder.relative_to(ROOT).as_posix() for folder, files in found.items() if files > MOST_FILES}
    assert not crowded


def test_one_public_name_for_one_class() -> None:
    """Two classes of one name are two things under one word. Each daemon has its own settings in force."""
    found = Counter(
        each.name
        for folder in LIBRARY
        for path in (ROOT / folder).rglob("*.py")
        for each in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(each, ast.ClassDef) and not each.name.startswith("_")
    )
    assert {name for name, times in found.items() if times > 1} == {"CurrentSettings"}


def test_t37_every_dependency_is_locked_by_its_hash_and_installed_by_it() -> None:
    for lock in ROOT.glob("requirements-*.lock"):
        entries = re.split(r"\n(?=\S)", lock.read_text(encoding="utf-8").strip())
        named = [entry for entry in entries if not entry.startswith("#")]
        assert named
        assert all("--hash=sha256:" in entry for entry in named), lock
    commands = re.sub(r"\\\n\s*", " ", (ROOT / "Makefile").read_text(encoding="utf-8")).splitlines()
    installs = [line for line in commands if re.search(r"pip (install|download) ", line)]
    assert installs
    assert all("--require-hashes" in line or "--no-deps" in line for line in installs)


def test_what_daemons_install_has_every_extra_of_daemons() -> None:
    """Only scikit-learn's interface, for analysts, and two large ones are no part of it: Spark and compiled kernels."""
    extras = SETTINGS["project"]["optional-dependencies"]
    lock = (ROOT / "requirements-run.lock").read_text(encoding="utf-8")
    locked = set(re.findall(r"^([\w.-]+)(?:\[\w+\])?==", lock, re.MULTILINE))
    for extra in extras.keys() - {"all", "compiled", "sklearn", "spark"}:
        wanted = {re.split(r"[\[>=<]", each)[0] for each in extras[extra]}
        assert wanted <= locked, extra


def test_t37_the_bill_of_materials_lists_every_locked_package_and_hash() -> None:
    lock = (ROOT / "requirements-run.lock").read_text(encoding="utf-8")
    written = [
        subprocess.run([sys.executable, ROOT / "deploy" / "sbom.py"], capture_output=True, check=True).stdout  # noqa: S603
        for _ in range(2)
    ]
    assert written[0] == written[1]
    bill = json.loads(written[0])
    named = {f"{each['name']}=={each['version']}" for each in bill["components"]}
    assert named == set(re.findall(r"^([\w.-]+==[^\s;]+)", lock, re.MULTILINE))
    hashes = [each["content"] for part in bill["components"] for each in part["hashes"]]
    assert hashes == re.findall(r"sha256:(\w+)", lock)
    assert "pkg:pypi/grpcio@" in {part["purl"].partition("@")[0] + "@" for part in bill["components"]}
    assert bill["metadata"]["component"]["version"] == SETTINGS["project"]["version"]


def test_t37_a_lock_without_versions_gives_no_bill_of_materials(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("one==1.0 --hash=sha256:00\ntwo>=2\n")
    output = [sys.executable, ROOT / "deploy" / "sbom.py", "--lock", tmp_path / "lock"]
    made = subprocess.run(output, capture_output=True, text=True, check=False)  # noqa: S603
    assert made.returncode != 0
    assert names_facts(made.stderr, "'two>=2'")


@pytest.mark.slow
def test_t37_a_swapped_dependency_is_not_installed(tmp_path: Path) -> None:
    name = "swapped-1.0-py3-none-any.whl"
    lock = tmp_path / "locked.txt"

    def install(content: str) -> subprocess.CompletedProcess[str]:
        with zipfile.ZipFile(tmp_path / name, "w") as wheel:
            wheel.writestr(zipfile.ZipInfo("swapped.py"), content)
            for file, text in {
                "METADATA": "Metadata-Version: 2.1\nName: swapped\nVersion: 1.0\n",
                "WHEEL": WHEEL,
            }.items():
                wheel.writestr(zipfile.ZipInfo(f"swapped-1.0.dist-info/{file}"), text)
            wheel.writestr(zipfile.ZipInfo("swapped-1.0.dist-info/RECORD"), "")
        if not lock.exists():
            lock.write_text(f"swapped==1.0 --hash=sha256:{sha256((tmp_path / name).read_bytes()).hexdigest()}\n")
        pip = [sys.executable, "-m", "pip", "install", "--no-index", "--no-cache-dir", "--disable-pip-version-check"]
        where = ["--find-links", tmp_path, "--require-hashes", "-r", lock, "--target", tmp_path / "there", "--upgrade"]
        return subprocess.run([*pip, *where], capture_output=True, text=True, check=False)  # noqa: S603

    assert install("GOOD = True\n").returncode == 0
    swapped = install("GOOD = False\n")
    assert swapped.returncode != 0
    assert "DO NOT MATCH THE HASHES" in swapped.stderr
    assert (tmp_path / "there" / "swapped.py").read_text() == "GOOD = True\n"


WHEEL = "Wheel-Version: 1.0\nGenerator: by-hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
