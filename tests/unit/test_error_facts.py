"""Errors have stable codes, and tests match them and the facts of a message, so that any message can be reworded."""

import ast
import importlib
import pkgutil
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from facts import facts, is_prose

import dpspca
from dpspca import common, provider, server
from dpspca.common.errors import DpspcaError, RefusedError, is_code
from dpspca.common.metrics import OTHER
from dpspca.provider.ledger.entries import LedgerError
from dpspca.server import metrics

TESTS = Path(__file__).parents[1]
WORDS = re.compile(r"[a-z]{2,} [a-z]{2,}")


def kinds(base: type[DpspcaError] = DpspcaError) -> Iterator[type[DpspcaError]]:
    for each in base.__subclasses__():
        if each.__module__.startswith("dpspca."):
            yield each
        yield from kinds(each)


def test_every_code_is_one_class_s_alone_and_may_be_quoted() -> None:
    for module in pkgutil.walk_packages(dpspca.__path__, "dpspca."):
        if ".samples" not in module.name and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    codes = Counter(vars(each)["code"] for each in set(kinds()) if "code" in vars(each))
    assert len(codes) > 50
    assert {code for code, count in codes.items() if count > 1} == set()
    assert {code for code in codes if not is_code(code)} == set()


def test_the_coordinator_counts_every_code_with_which_a_provider_refuses() -> None:
    for module in pkgutil.walk_packages(provider.__path__, "dpspca.provider."):
        importlib.import_module(module.name)
    refusals = {each for each in kinds() if issubclass(each, RefusedError | LedgerError)}
    sent = {each.code for each in refusals if each.__module__.startswith(("dpspca.common.", "dpspca.provider."))}
    assert len(sent) > 20
    assert sent <= metrics._CODES


def test_the_coordinator_counts_each_of_its_own_codes() -> None:
    for package in (common, server):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    own = {each.code for each in kinds() if each.__module__.startswith(("dpspca.common.", "dpspca.server."))}
    assert {"result-gone", "journal-lost", "slot-full"} <= own
    counted = metrics.CoordinatorMetrics()
    for code in own:
        counted.refused("coordinator", code)
    assert {code for code in own if f'code="{code}"' not in counted.text()} == set()
    assert f'code="{OTHER}"' not in counted.text()


@pytest.mark.parametrize("text", ["", "-", "a-", "Not-now", "not now", "a--b", "x" * 21, "a-b-c-d-e", "a\x1b", "a1"])
def test_what_has_not_the_form_of_a_code_is_not_quoted(text: str) -> None:
    assert not is_code(text)


def test_no_pattern_for_an_error_has_words_of_a_sentence() -> None:
    """Patterns are made by ``facts``, which refuses a part of a sentence. A few alternatives are written by hand."""
    by_hand = {text: where for where, text in patterns()}
    assert {where: text for text, where in by_hand.items() if WORDS.search(text)} == {}
    assert len(by_hand) <= 4


def patterns() -> Iterator[tuple[str, str]]:
    """Find each literal pattern for the message of an error, with its place."""
    for path in sorted(TESTS.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for keyword in node.keywords if isinstance(node, ast.Call) else ():
                parts = [each.value for each in ast.walk(keyword.value) if isinstance(each, ast.Constant)]
                if keyword.arg == "match" and isinstance(keyword.value, ast.Constant | ast.JoinedStr):
                    yield f"{path.relative_to(TESTS)}:{node.lineno}", " ".join(map(str, parts))


def test_facts_are_found_as_whole_words_and_numbers_in_any_order() -> None:
    message = "The job has 2 of 12 rows (rate 0.25). Run `dpspca jobs`: see /data/a.txt."
    for named in [(2, 12), (12, "rows", 2), (0.25,), ("`dpspca jobs`",), ("/data/a.txt",), (("job", 2), 12)]:
        assert re.search(facts(*named), message)
    for absent in (1, 25, 0.2, 5, "row", "ob", "/data/b"):
        assert not re.search(facts(absent), message)
    with pytest.raises(AssertionError):
        facts("a part of a sentence")
    assert not is_prose("`dpspca ledger end-quarantine --help`, columns, rounds, noise")
