"""What a steward reads about a job before deciding."""

from typing import Any

from facts import names_facts

from dpspca.common import queries
from dpspca.common.queries.base import Query
from dpspca.provider.approval.words import KINDS, MOST_NAMES, _asked


def test_every_kind_of_answer_is_described() -> None:
    kinds = {
        each.kind
        for each in vars(queries).values()
        if isinstance(each, type) and issubclass(each, Query)
        if hasattr(each, "kind")
    }
    assert len(kinds) > 20
    assert kinds <= KINDS.keys()


def asks(columns: int) -> dict[str, Any]:
    return {
        "column_names": [f"c{place}" for place in range(columns)], "columns": columns, "unit": "row-add-remove",
        "centering": "none", "scaling": "none", "options": {}, "explained_variance": True, "components": 2,
        "method": "auto", "summary": "decides", "norm_bound": 4.0, "dictionary": "ab" * 32,
    }  # fmt: skip


def test_the_approver_sees_the_columns_and_the_dictionary() -> None:
    """Which columns leave matters most to an ethics board. So they are named, and what is not named is counted."""
    told = _asked(asks(MOST_NAMES))
    assert all(f"'c{place}'" in told for place in range(MOST_NAMES))
    assert "--json" not in told
    assert names_facts(told, "dictionary", "ab" * 6)
    more = _asked(asks(MOST_NAMES + 3))
    assert names_facts(more, 3, "--json")
    assert f"'c{MOST_NAMES}'" not in more
