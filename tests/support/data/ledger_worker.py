"""A process with a provider's ledger, for tests that kill it or race it: ``ledger_worker.py TASK LEDGER HEAD NAME``.

It prints a line for each thing it did, after the ledger has confirmed that it is on disk.
"""

import sys
import time
from itertools import count
from pathlib import Path

from ledgers import LIMITS, PRICE, SLACK, opening, reserve, respond

from dpspca.common.errors import BudgetExceededError
from dpspca.provider.ledger.ledger import LedgerError
from dpspca.provider.ledger.sqlite import SqliteLedger


def say(*words: object) -> None:
    print(*words, flush=True)  # noqa: T201  # whoever started this process listens


def answer(ledger: SqliteLedger, name: str) -> None:
    """Answer one job after the other for ever; abort every third one."""
    for number in count():
        job = f"{name}.{number}"
        ledger.open(opening(job, data_set=f"set of {job}"), LIMITS)
        for position in range(3 if number % 3 else 1):
            sent = respond(ledger, job, position, 2 * (number % 7) * 1000 + 2)
            say("sent", job, position, sent.tobytes().hex()[:64])
        ledger.close(job, "done" if number % 3 else "aborted")


def hold(ledger: SqliteLedger, name: str) -> None:
    """Hold the ledger open until the input ends."""
    say("holding", name, ledger.instance)
    sys.stdin.read()


def spend(ledger: SqliteLedger, name: str) -> None:
    """Reserve a tenth of the budget."""
    job = f"{name} {time.monotonic_ns()}"
    ledger.open(opening(job, units=PRICE, slack_units=SLACK), LIMITS)
    assert reserve(ledger, job, 0)
    say("admitted", job)


def race(path: Path, head: Path, name: str) -> None:
    """Reserve tenths until the budget is used up, and close the ledger after each."""
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
