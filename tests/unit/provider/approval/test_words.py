"""A steward reads in plain words what would leave, whatever the job asks."""

from dpspca.common.queries import RowQuery
from dpspca.provider.approval.words import KINDS


def kinds(base: type[RowQuery]) -> set[str]:
    own = {base.kind} if "kind" in vars(base) and base.__module__.startswith("dpspca.") else set()
    return own.union(*(kinds(each) for each in base.__subclasses__()))


def test_every_kind_of_answer_has_words() -> None:
    assert set(KINDS) == kinds(RowQuery)
