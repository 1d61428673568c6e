"""What a steward reads about a job before deciding."""

from dpspca.common import queries
from dpspca.common.queries.base import Query
from dpspca.provider.approval.words import KINDS


def test_every_kind_of_answer_is_described() -> None:
    kinds = {
        each.kind
        for each in vars(queries).values()
        if isinstance(each, type) and issubclass(each, Query)
        if hasattr(each, "kind")
    }
    assert len(kinds) > 20
    assert kinds <= KINDS.keys()
