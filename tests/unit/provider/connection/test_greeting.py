"""A greeting fits into a message, however many data sets, columns and receipts there are."""

from collections.abc import Mapping

import numpy as np
import scipy.sparse
from facts import names_facts
from local_federation import AllowEverything

from dpspca.common.dictionary import MOST_TITLE, Dictionary, Number, Preparation
from dpspca.common.storage import MAX_DATA_SETS
from dpspca.common.transport import rpc
from dpspca.common.trust.receipts import MAX_RECEIPT_BYTES
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.provider.connection.greeting import (
    MOST_NAME_BYTES,
    MOST_OPEN_JOBS,
    data_sets_without_names,
    greeting,
    names_warning,
)
from dpspca.provider.data.checked.preparation import CheckedRows
from dpspca.provider.jobs.registry import ProviderSetup
from dpspca.provider.ledger.ledger import MemoryLedger
from dpspca.provider.ledger.peer_receipts import MOST_LEDGERS, MOST_PEERS, PeerReceipts


class Busy(MemoryLedger):
    """A ledger with as many open jobs as are told of."""

    def open_jobs(self) -> tuple[str, ...]:
        return ("0" * 64,) * (2 * MOST_OPEN_JOBS)


class Full(PeerReceipts):
    """As many receipts as are kept, each as long as any is."""

    def held(self) -> list[pb.HeldReceipt]:
        content = bytes(MAX_RECEIPT_BYTES - 16)
        one = pb.HeldReceipt(provider="p" * 63, receipt=pb.Receipt(certificate=content))
        return [one] * (MOST_PEERS * MOST_LEDGERS)


def told(columns: Mapping[str, tuple[str, ...]], dictionary: Preparation | None = None) -> pb.Hello:
    rows = {name: CheckedRows(np.zeros((0, len(names))), names) for name, names in columns.items()}
    settings = ProviderSetup("", None, None, None, rows, AllowEverything, Busy(), peers=Full())  # type: ignore[arg-type]
    settings.dictionaries = {} if dictionary is None else dict.fromkeys(columns, dictionary)
    return greeting(settings, bytes(32))


def wide(columns: int, letters: int = 14) -> tuple[str, ...]:
    return tuple(f"{number:0{letters}}" for number in range(columns))


def test_fourteen_wide_data_sets_are_greeted_with() -> None:
    """Of 14,000 columns each, which were 3.5 MB, and a provider that never connected."""
    columns = {f"set-{number}": wide(14_000) for number in range(14)}
    said = told(columns)
    assert said.ByteSize() < rpc.MAX_MESSAGE
    assert [each.dimension for each in said.data_sets] == [14_000] * 14
    named = {each.name for each in said.data_sets if each.columns}
    assert named == columns.keys() - set(data_sets_without_names(columns))
    assert len(named) == MOST_NAME_BYTES // (14_000 * 16)
    assert names_facts(names_warning(columns), f"{MOST_NAME_BYTES:,}", *data_sets_without_names(columns))


def test_a_greeting_of_the_most_of_everything_is_taken() -> None:
    columns = {f"{number:063}": wide(500, 50 + number % 7) for number in range(MAX_DATA_SETS)}
    described = prepared("\U0001f600" * 999)
    said = told(columns, described)
    assert len(said.open_jobs) == MOST_OPEN_JOBS
    assert said.ByteSize() < rpc.MAX_MESSAGE
    assert len(said.data_sets) == MAX_DATA_SETS
    assert said.data_sets[0].dictionary == described.dictionary.digest()
    assert said.data_sets[0].dictionary_title == "\U0001f600" * MOST_TITLE


def prepared(title: str) -> Preparation:
    dictionary = Dictionary((Number(name="age", unit="years", range=(0.0, 110.0)),), title)
    return Preparation.parse(dictionary, None, ())


def test_a_data_set_is_offered_with_the_name_of_its_dictionary() -> None:
    described = prepared("Three hospitals")
    (offered,) = told({"cohort": ("age",)}, described).data_sets
    assert (offered.dictionary, offered.dictionary_title) == (described.dictionary.digest(), "Three hospitals")
    (plain,) = told({"cohort": ("age",)}).data_sets
    assert (plain.dictionary, plain.dictionary_title) == ("", "")


def test_a_data_set_is_offered_as_sparse_if_its_rows_are_stored_so() -> None:
    rows = {"dense": CheckedRows(np.zeros((3, 2))), "sparse": CheckedRows(scipy.sparse.csr_array(np.zeros((3, 2))))}
    settings = ProviderSetup("", None, None, None, rows, AllowEverything, Busy(), peers=Full())  # type: ignore[arg-type]
    assert {each.name: each.sparse for each in greeting(settings, bytes(32)).data_sets} == {
        "dense": False,
        "sparse": True,
    }


def test_names_are_measured_as_they_are_sent() -> None:
    """Not by their letters: of some, a letter takes four bytes."""
    said = told({"one": tuple(chr(0x1F600 + number % 50) * 9 + str(number) for number in range(2**15))})
    assert said.ByteSize() < rpc.MAX_MESSAGE
    assert not said.data_sets[0].columns


def test_short_lists_of_names_keep_their_room_beside_a_long_one() -> None:
    columns = {"long": wide(60_000), "short": ("a", "b"), "none": ()}
    assert data_sets_without_names(columns) == ("long",)
    assert not names_warning({"short": ("a", "b"), "none": None})
