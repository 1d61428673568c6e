"""A provider's ledger in a process of its own, to be killed or raced: ``ledger_worker.py TASK LEDGER HEAD NAME``.

It says in a line what it has done, each time after the ledger has said that it is on the disk.
"""

import sys
import time
from itertools import count
from pathlib import Path

from ledgers import LIMITS, PRICE, SLACK, opening, reserve, respond

from dpspca.common.errors import BudgetExceededError
from dpspca.provider.ledger import LedgerError
from dpspca.provider.sqlite_ledger import SqliteLedger


def say(*words: object) -> None:
    print(*words, flush=True)  # noqa: T201  # whoever started this process listens


def answer(ledger: SqliteLedger, name: str) -> None:
    """Answer one job after the other, for ever; every third is given up."""
    for number in count():
        job = f"{name}.{number}"
        ledger.open(opening(job, data_set=f"set of {job}"), LIMITS)
        for position in range(3 if number % 3 else 1):
            sent = respond(ledger, job, position, 2 * (number % 7) * 1000 + 2)
            say("sent", job, position, sent.tobytes().hex()[:64])
        ledger.close(job, "done" if number % 3 else "aborted")


def hold(ledger: SqliteLedger, name: str) -> None:
    """Keep the ledger until the input ends."""
    say("holding", name, ledger.instance)
    sys.stdin.read()


def spend(ledger: SqliteLedger, name: str) -> None:
    """Take a tenth of the budget."""
    job = f"{name} {time.monotonic_ns()}"
    ledger.open(opening(job, units=PRICE, slack_units=SLACK), LIMITS)
    assert reserve(ledger, job, 0)
    say("admitted", job)


def race(path: Path, head: Path, name: str) -> None:
    """Take tenths for as long as there are any, with the ledger let go in between."""
    while True:
        try:
            with SqliteLedger(path, head) as ledger:
                spend(ledger, name)
        except BudgetExceededError:
            say("nothing left")
            return
        except LedgerError as problem:
            if "in use by" not in problem.what:
                raise
        time.sleep(0.001)


def main(task: str, path: Path, head: Path, name: str) -> None:
    if task == "race":
        race(path, head, name)
        return
    with SqliteLedger(path, head) as ledger:
        (answer if task == "answer" else hold)(ledger, name)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
