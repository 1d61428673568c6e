"""No page of a steward's dashboard depends on how many rows there are, or on what is in them."""

import asyncio
import re
import shutil
import time
from pathlib import Path

import numpy as np
from approvals import BEN, MARIA, Site, human_policy, waiting_job
from local_federation import Enrolment
from steward import LIFETIME, QUERIES, QUERY, job, opening

from dpspca.cli.dashboard.app import _Site
from dpspca.cli.dashboard.guard import Guard
from dpspca.cli.dashboard.steward import StewardPages
from dpspca.client.steward import examine_settings
from dpspca.common.algorithms import catalogue
from dpspca.common.storage import ProviderSettings, read_settings
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.evaluate.shard import Shard
from dpspca.provider.ledger import ledger_paths
from dpspca.provider.ledger.ledger import Limits
from dpspca.provider.ledger.sqlite import SqliteLedger
from dpspca.provider.release.entropy import system_entropy
from dpspca.provider.release.responder import Responder

COUNT = 99
HASH = re.compile(r"<td><code>[0-9a-f]{12}</code></td></tr>")
"""The hash of an answer on the page of the outbox. The answer has noise, so two are different whatever the rows are."""


def give_rows(site: Site, rows: np.ndarray, at: float) -> None:
    """Give a provider rows, and have it answer a job about them as its daemon does."""
    np.save(site.folder / "rows.npy", rows)
    spec = job()
    settings = read_settings(ProviderSettings, site.config)
    with SqliteLedger(*ledger_paths(settings, site.config), clock=lambda: at) as ledger:
        about = {"issued_at": int(at), "expires_at": int(at) + 3600, "data_digest": f"{len(rows):064x}"}
        ledger.open(opening("e" * 64, spec, **about), Limits(LIFETIME))
        shard = Shard(check_rows(rows), spec.norm_bound)
        asked = Responder(catalogue.plan(spec), shard, ledger, system_entropy, job="e" * 64)
        for position in range(QUERIES):
            asked.respond(position, QUERY)


def pages_of(site: Site, waiting: str) -> dict[tuple[str, str], str]:
    """Return every page as HTML, without what no two folders or answers have in common."""
    shown = {}
    for path in (("", ""), ("approval", ""), ("approval", waiting), ("policy", ""), ("outbox", "")):
        pages, guard = StewardPages(site.config), Guard("127.0.0.1:1", "/base", "form", "token")
        content = _Site(site.config, guard, pages)._rendered(asyncio.run(pages.page(*path)), path[0])
        shown[path] = HASH.sub("HASH", content.replace(str(site.folder), "FOLDER"))
    return shown


def test_the_dashboard_has_no_number_of_the_rows(tmp_path: Path) -> None:
    """One more row, and other contents, change no page. What ``dpspca data check`` counts changes."""
    enrolment = Enrolment.create(tmp_path / "town")
    policy = human_policy(MARIA, BEN).replace("row-replace-one", "row-add-remove")
    north = Site.made(enrolment, "north", policy)
    north.config.write_text(f'ledger_head = "head/head"\n{north.config.read_text()}')  # the two share an identity
    waiting = waiting_job(enrolment, north)
    other = Site(north.name, tmp_path / "other", north.identity)
    shutil.copytree(north.folder, other.folder)
    at, draw = time.time(), np.random.default_rng(5)
    for site, count in ((north, COUNT), (other, COUNT + 1)):
        give_rows(site, draw.standard_normal((count, 6)), at)
    counted = [
        [each.facts.rows for each in examine_settings(read_settings(ProviderSettings, site.config)) if each.facts]
        for site in (north, other)
    ]
    assert counted == [[COUNT], [COUNT + 1]]
    before, after = (pages_of(site, waiting) for site in (north, other))
    assert before.keys() == after.keys()
    for path in before:
        assert before[path] == after[path], path
    assert before["outbox", ""].count("HASH") == QUERIES
