"""The `dpspca evidence` commands: collect what shows what a job did, and check it offline, also years later."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from dpspca.cli.arguments import CHECK_CODES, AnalystSettingsFile, AsJson, Force, read_fingerprint
from dpspca.cli.render import connected, print_output, print_text, require_new, to_json, write_file
from dpspca.client.evidence import Finding, Findings, verify
from dpspca.client.federation import AsyncFederation
from dpspca.client.files import reading
from dpspca.common.text import printable

COLLECT: Final = "collect"
FAILED: Final = 1
COLLECT_CODES: Final = (
    "Exit codes: 0 done; 1 the file was written, but no provider stated anything, or a check of it failed; 2 a flag or "
    "file is wrong or missing, or the federation refused (standard error says what is wrong and what to do); 130 "
    "interrupted."
)


class JobOrCommand(TyperGroup):
    """Takes a job's name in the place of a command: `dpspca evidence JOB` collects the evidence of that job."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401  # typer's own copy of click's
        """Put the command before a job's name."""
        if args and args[0] not in {*self.commands, "--help"}:
            args = [COLLECT, *args]
        return super().parse_args(ctx, args)


evidence = typer.Typer(
    name="evidence",
    cls=JobOrCommand,
    no_args_is_help=True,
    help="Collect evidence of a job: `dpspca evidence JOB`. Check it offline: `dpspca evidence verify FILE`.",
)

BillOfMaterials = Annotated[
    Path | None,
    typer.Option(
        "--bill-of-materials",
        help="The bill of materials of the analyst's software, as `make sbom` writes it.",
        show_default=False,
    ),
]


@evidence.command(COLLECT, epilog=COLLECT_CODES)
def _collect(  # noqa: PLR0913  # a command's flags are its parameters
    job: Annotated[
        str,
        typer.Argument(metavar="JOB", help="The job's name, or enough of its first characters.", show_default=False),
    ],
    *,
    config: AnalystSettingsFile,
    model: Annotated[
        Path | None,
        typer.Option(help="The job's model file. If left out: the model that the coordinator still has, if any."),
    ] = None,
    bill_of_materials: BillOfMaterials = None,
    out: Annotated[Path, typer.Option(help="File to write the evidence to.")] = Path("job.evidence"),
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write one file that shows what a job asked, under which terms, at what price, and what its providers recorded.

    It holds the signed job, the certificates, the privacy statement, the model's hash and, signed by each provider, its
    terms, its ledger's record and the decisions of persons. It costs no privacy. Collect it soon: terms may change.
    `dpspca evidence JOB` is the same.
    """
    require_new(out, replace=force)
    stored, bill = _content(model, "a model"), _content(bill_of_materials, "a bill of materials")

    async def work(federation: AsyncFederation) -> bytes:
        return await federation.evidence(job, model=stored, bill_of_materials=bill)

    content = connected(config, work)
    found = verify(content)
    write_file(out, content)
    missing, failed = ([each.what for each in some] for some in (found.missing, found.failed))
    silent = found.facts.get("without_statements", [])
    facts = {"file": str(out), "holds": found.holds, "without_statements": silent, "missing": missing, "failed": failed}
    print_output(facts, str(out), as_json=as_json)
    for line in (*missing, *failed):
        typer.echo(printable(line), err=True)
    if _nothing_stated(found) or not found.holds:
        raise typer.Exit(FAILED)


@evidence.command("verify", epilog=CHECK_CODES)
def _verify(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of evidence.", show_default=False)],
    *,
    fingerprint: Annotated[
        str | None,
        typer.Option(
            help="Fingerprint of the federation's authority, as `dpspca study show` prints it. If left out: compare "
            "the one that is printed.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(help="A model file, to check that it is the model of this evidence.", show_default=False),
    ] = None,
    bill_of_materials: BillOfMaterials = None,
    as_json: AsJson = False,
) -> None:
    """Check a file of evidence without any federation, and say in words what was checked and what cannot be known."""
    known = None if fingerprint is None else read_fingerprint(fingerprint)
    content = _content(file, "evidence")
    assert content is not None
    found = verify(
        content,
        fingerprint=known,
        model=_content(model, "a model"),
        bill_of_materials=_content(bill_of_materials, "a bill of materials"),
    )
    if as_json:
        typer.echo(to_json({"file": str(file)} | found.to_dict()))
    else:
        _print(found)
    if not found.holds:
        raise typer.Exit(FAILED)


def _content(path: Path | None, what: str) -> bytes | None:
    if path is None:
        return None
    with reading(path, what):
        return path.read_bytes()


def _print(found: Findings) -> None:
    for heading, some in (
        ("FAILED. Do not rely on this file:", found.faults),
        ("FAILED. A file that you gave is not the one of this evidence:", found.other_files),
        ("Checked:", found.checked),
        ("Not known from this file:", found.unknown),
    ):
        _print_some(heading, some)
    print_text(_verdict(found))


def _verdict(found: Findings) -> str:
    silent = found.facts.get("without_statements", [])
    if found.faults:
        return "The evidence does NOT hold."
    if found.other_files:
        return "The evidence itself holds, but a file that you gave DOES NOT BELONG to it."
    if _nothing_stated(found):
        return "What the analyst signed holds. NO PROVIDER STATED ANYTHING, so nothing shows what providers did."
    but = f" INCOMPLETE: no statement of {', '.join(silent)}." if silent else ""
    return f"Everything that can be checked holds.{but}"


def _nothing_stated(found: Findings) -> bool:
    job = found.facts.get("job")
    return job is not None and len(found.facts["without_statements"]) == len(job["providers"])


def _print_some(heading: str, some: Iterable[Finding]) -> None:
    listed = list(some)
    if listed:
        print_text(heading)
    for each in listed:
        print_text(f"  {printable(each.what)}")
