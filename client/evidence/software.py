"""The software that each party states to have used, compared with what is installed where the evidence is checked."""

from dpspca.common.names import shortened
from dpspca.common.storage import installed_digest
from dpspca.common.version import __version__

from .findings import Findings


def check_software(found: Findings, code: str, who: str, version: str, digest: str | None) -> None:
    """Say whether a party states the software that is installed here. It is that party's word, so nothing can fail."""
    if digest == installed_digest():
        found.check(
            code,
            f"By its own word, {who} used the software that is installed here: version {__version__}, digest {digest}.",
            holds=True,
            otherwise="",
        )
        return
    stated = "no digest of its files is stated" if digest is None else f"the digest of its files is {shortened(digest)}"
    found.cannot_know(
        code,
        f"Which software {who} used. By its own word it was version {shortened(version)}, and {stated}. The digest of "
        f"the software installed here is {installed_digest()}.",
    )
