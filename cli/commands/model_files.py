"""Commands that turn a stored model into scores of rows, which stay here, or into files for other programs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from dpspca.cli.arguments import AsJson, Force
from dpspca.cli.render import print_output, require_new, to_json, write_file
from dpspca.client.described_jobs import load_dictionary
from dpspca.client.files import (
    FORMS,
    TABLES,
    Phenotypes,
    doubts_about,
    doubts_about_samples,
    load_model,
    loadings_facts,
    plink_scores,
    reading,
    rows_of_model,
    score_files,
    scores_of,
)
from dpspca.common.checks import check, check_known
from dpspca.common.results import Model
from dpspca.common.storage import Reading, read_data_settings
from dpspca.provider.data import read_variants

SCORES_WARNING: Final = (
    "Scores are not private: each is computed from one row and reveals something about it. Treat them like the rows."
)
PLINK: Final = "plink2"
_MISSING_WARNING: Final = (
    "PLINK's scores of samples that lack a genotype differ from those of `dpspca model project`: PLINK counts a "
    "missing genotype as the model's mean, and here it counts as the number that is declared for it."
)
_NAMING_WARNING: Final = (
    "PLINK leaves variants without an ID out, such as {0!r:.60}: it writes their chromosomes otherwise than the model. "
    "Give them the model's names in PLINK's files. If these have such names already, nothing needs to be done."
)
_FORMS: Final = ("json", *TABLES, PLINK)

Stored = Annotated[Path, typer.Argument(metavar="MODEL", help="A model file.", show_default=False)]


_Rows = Annotated[
    Path,
    typer.Argument(
        metavar="SOURCE",
        help="File or folder of rows: text, Parquet, genotypes, a database and others.",
        show_default=False,
    ),
]
_Scores = Annotated[
    Path,
    typer.Option(
        help=f"File to write the scores to: {', '.join(score_files.FILES)}, or a database: .sqlite, .duckdb, "
        ".postgresql."
    ),
]
_Table = Annotated[str | None, typer.Option(help="In a database: the new table to write.", show_default=False)]
_Phenotypes = Annotated[
    Path | None,
    typer.Option(
        help="Table of phenotypes to which to add the scores, as SAIGE takes them. --out then is a .txt, .tsv or .csv "
        "file.",
        show_default=False,
    ),
]
_IdColumn = Annotated[str, typer.Option(help="With --phenotypes: the column that names samples.")]
_Ids = Annotated[
    Path | None,
    typer.Option(
        help="Names of the rows: a .fam or .psam file, or one name a line. Default: the samples beside "
        "genotypes, or the rows of triplets.",
        show_default=False,
    ),
]
_ByPosition = Annotated[
    bool,
    typer.Option(
        "--by-position",
        help="Match columns to features by position and ignore their names. Needed if only the model or only the "
        "file has column names.",
    ),
]
_ProviderSettings = Annotated[
    Path | None,
    typer.Option(help="A provider's settings that declare how to read the rows.", show_default=False),
]
_Declared = Annotated[
    str | None,
    typer.Option(help="The data set of these settings whose reading and dictionary to use.", show_default=False),
]
_Dictionary = Annotated[
    Path | None,
    typer.Option(help="The dictionary of the model's job, if the model does not hold it.", show_default=False),
]


def project(  # noqa: PLR0913  # a command's flags are its parameters
    stored: Stored,
    rows: _Rows,
    *,
    out: _Scores = Path("scores.npy"),
    table: _Table = None,
    ids: _Ids = None,
    phenotypes: _Phenotypes = None,
    id_column: _IdColumn = "IID",
    by_position: _ByPosition = False,
    config: _ProviderSettings = None,
    data_set: _Declared = None,
    dictionary: _Dictionary = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Project rows onto the components. The scores reveal something about the rows: they are not private.

    Columns are matched to the model's features by name, in any order. The file is refused if a column is missing,
    unknown or there twice. Nothing is sent.

    If the model's job had a dictionary, rows are prepared by it first. Columns of the file are then features in the
    dictionary's units, or the settings map them to features.
    """
    check_ending(out, *(score_files.ENDINGS if phenotypes is None else FORMS))
    check(phenotypes is None or table is None, "--table goes with a database.", "Leave out --table.")
    if phenotypes is not None or out.suffix in score_files.FILES:
        require_new(out, replace=force)
    known = None if phenotypes is None else Phenotypes.read(phenotypes, id_column)
    read, reading_as = read_model(stored), _declared(config, data_set)
    if dictionary is not None:
        read = read.with_dictionary(load_dictionary(dictionary))
    found = rows_of_model(read, rows, reading_as, by_position=by_position)
    listed = ids or (score_files.names_beside(rows) if reading_as.triplets is None else reading_as.triplets.rows)
    names = None if listed is None else score_files.RowNames.read(listed, found.count)
    scores, doubts = scores_of(read, found.matrix), doubts_about_samples(found.matrix)
    doubts += doubts_about(read, rows, reading_as, by_position=by_position)
    without = None
    if known is None:
        score_files.write_scores(out, scores, names, table)
    else:
        without = score_files.write_phenotypes(out, scores, names, known)
    facts = {"file": str(out), "rows": scores.shape[0], "components": scores.shape[1], "warning": SCORES_WARNING}
    more = ({} if table is None else {"table": table}) | ({} if without is None else {"samples_without": without})
    print_output(facts | more, str(out), as_json=as_json)
    if without:
        typer.echo(f"{without} rows of the table have no scores: NA stands there.", err=True)
    for sentence in (*doubts, SCORES_WARNING):
        typer.echo(sentence, err=True)


def export(  # noqa: PLR0913  # a command's flags are its parameters
    stored: Stored,
    *,
    out: Annotated[
        Path,
        typer.Option(
            help="File to write the components to: .json, .csv or .parquet. For plink2: the beginning of both names.",
            show_default=False,
        ),
    ],
    form: Annotated[
        str | None, typer.Option("--format", help=f"One of: {', '.join(_FORMS)}. Default: the file's ending.")
    ] = None,
    alleles: Annotated[
        Path | None,
        typer.Option(
            help="For plink2: the .bim, .pvar or .afreq file that says which allele is counted, if the dictionary does "
            "not.",
            show_default=False,
        ),
    ] = None,
    dictionary: Annotated[
        Path | None,
        typer.Option(help="For plink2: the dictionary of the job, if the model does not hold it.", show_default=False),
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write all loadings as JSON, with the privacy statement, or as a table with one line per feature, or for PLINK 2.

    In a .csv table, an apostrophe is put before every name that a spreadsheet could take for a formula: a name that
    begins with =, +, -, @, a tab, a line break or an apostrophe. Remove one apostrophe to get the name back.
    """
    chosen = form or out.suffix.removeprefix(".")
    check_known("format", chosen, _FORMS)
    check(alleles is None or chosen == PLINK, "--alleles goes with --format plink2.", "Leave out --alleles.")
    check(dictionary is None or chosen == PLINK, "--dictionary goes with --format plink2.", "Leave it out.")
    files = [out.with_name(out.name + end) for end in (".score", ".afreq")] if chosen == PLINK else [out]
    for each in files:
        require_new(each, replace=force)
    read = read_model(stored)
    if chosen == PLINK:
        _export_for_plink(read, files, alleles, dictionary, as_json=as_json)
        return
    write_file(out, TABLES[chosen](read) if chosen in TABLES else to_json(loadings_facts(read)) + "\n")
    print_output({"file": str(out)}, str(out), as_json=as_json)


def _export_for_plink(
    read: Model, out: Sequence[Path], alleles: Path | None, dictionary: Path | None, *, as_json: bool
) -> None:
    known = None
    if alleles is not None:
        with reading(alleles, "a list of variants"):
            known = read_variants(alleles)
    if dictionary is not None:
        read = read.with_dictionary(load_dictionary(dictionary))
    made = plink_scores(read, known)
    score, frequencies = out
    write_file(score, made.score)
    write_file(frequencies, made.frequencies)
    command, for_bed = (made.command(str(score), str(frequencies), flag) for flag in ("--pfile", "--bfile"))
    files = [str(score), str(frequencies)]
    facts = {"files": files, "command": command, "command_for_bed": for_bed, "offsets": made.offsets}
    lines = [*files, command, "For .bed files, use --bfile PREFIX in place of --pfile PREFIX."]
    if any(made.offsets):
        lines.append(f"Add to the sums: {', '.join(f'{each:.9g}' for each in made.offsets)}.")
    warnings = [] if made.counts_missing_alike else [_MISSING_WARNING]
    if made.unnamed is not None:
        warnings.append(_NAMING_WARNING.format(made.unnamed))
    print_output(facts | ({"warning": " ".join(warnings)} if warnings else {}), *lines, as_json=as_json)
    for warning in warnings:
        typer.echo(warning, err=True)


def read_model(stored: Path) -> Model:
    """Read a model to plot, apply or export. Warn if it must not be released."""
    with reading(stored, "a model"):
        read = load_model(stored)
    if not read.statement.releasable:
        typer.echo(read.statement.headline, err=True)
    return read


def check_ending(path: Path, *known: str) -> None:
    """Refuse a file of another kind."""
    check(path.suffix in known, f"{path} ends in neither {' nor '.join(known)}.", f"Use {' or '.join(known)}.")


def _declared(config: Path | None, data_set: str | None) -> Reading:
    """Return a provider's declarations about the files of a data set."""
    check(config is not None or data_set is None, "--data-set needs --config.", "Add --config FILE.")
    if config is None:
        return Reading()
    settings = read_data_settings(config)
    return settings.reading_of(settings.chosen(data_set))
