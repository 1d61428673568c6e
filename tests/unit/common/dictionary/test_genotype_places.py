"""A dictionary says where a variant is and which alleles it has, in one way for all files that write it differently."""

import gzip
import tomllib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from facts import facts

from dpspca.common.decoding import decode
from dpspca.common.dictionary import Dictionary, Genotype, draft, parse_frequencies, remarks
from dpspca.common.errors import InvalidParameterError
from dpspca.common.storage import packed_text, read_dictionary, read_frequencies
from dpspca.provider.data import Variant, read_variants

WHOLE = {
    "kind": "genotype", "allele": "A", "other_allele": "G", "chromosome": "1", "position": 77, "frequency": 0.25,
}  # fmt: skip
HEAD = "#CHROM\tPOS\tID\tREF\tALT\tALT_FREQS\tOBS_CT\n"


def of(**features: dict[str, Any]) -> Dictionary:
    return Dictionary.parse({"format": "dpspca-dictionary-1", "features": features})


@pytest.mark.parametrize(
    ("written", "known"),
    [("1", "1"), (1, "1"), ("chr1", "1"), ("CHR01", "1"), ("NA", ""), ("x", "X"), (23, "X"), ("PAR1", "X"),
     ("chrM", "MT"), ("0", ""), (".", ""), ("", ""), ("GL000009.2", "GL000009.2")],
)  # fmt: skip
def test_a_chromosome_has_one_name_and_one_digest(written: str | int, known: str) -> None:
    own = WHOLE if known else {key: value for key, value in WHOLE.items() if key != "position"}
    made = of(rs1=own | {"chromosome": written})
    assert isinstance(made.features[0], Genotype)
    assert made.features[0].chromosome == (known or None)
    assert made.digest() == of(rs1=own | {"chromosome": known}).digest()
    assert Dictionary.from_json(made.to_json()) == made


@pytest.mark.parametrize("key", ["allele", "other_allele", "chromosome", "position"])
def test_each_fact_about_a_variant_is_part_of_the_digest(key: str) -> None:
    other = {"allele": "T", "other_allele": "C", "chromosome": "2", "position": 78}[key]
    assert of(rs1=WHOLE | {key: other}).digest() != of(rs1=WHOLE).digest()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"other_allele": "A"}, ("other_allele", "'A'")),
        ({"allele": ""}, ("other_allele", "allele")),
        ({"chromosome": ""}, ("position", "chromosome")),
        ({"position": 0}, ("position", 0, 1, 2**31 - 1)),
        ({"position": 1.5}, "position"),
    ],
)
def test_alleles_and_places_that_no_variant_has_are_refused(changes: dict[str, Any], said: Any) -> None:
    with pytest.raises(InvalidParameterError, match=facts("'rs1'", said)):
        of(rs1=WHOLE | changes)


def test_a_frequency_without_an_id_has_its_place_and_alleles_as_name() -> None:
    """So have variants without an ID in the files of providers."""
    found = parse_frequencies(f"{HEAD}1\t77\t.\tG\tA\t0.25\t100\nchr2\t78\t.\tC\tT\t0.5\t100\n")
    assert list(found) == ["1:77:G:A", "chr2:78:C:T"]
    assert found["1:77:G:A"] == WHOLE


def test_a_variant_without_any_genotype_is_left_out_as_one_that_all_carry() -> None:
    found = parse_frequencies(f"{HEAD}1\t77\trs1\tG\tA\t0.25\t100\n1\t78\trs2\tG\tA\tnan\t0\n")
    assert list(found) == ["rs1"]


@pytest.mark.parametrize("ending", [".afreq", ".afreq.gz", ".afreq.zst", ".AFREQ.GZ"])
def test_frequencies_may_be_packed(ending: str, tmp_path: Path) -> None:
    """In a dictionary, and as a list that says which allele is counted."""
    file = tmp_path / f"panel{ending}"
    text = f"{HEAD}1\t77\trs1\tG\tA\t0.25\t100\n"
    file.write_bytes(packed(text.encode(), ending))
    (tmp_path / "study.toml").write_text(
        f'format = "dpspca-dictionary-1"\n[genotypes]\nfile = "{file.name}"\n', encoding="utf-8"
    )
    assert read_dictionary(tmp_path / "study.toml") == of(rs1=WHOLE)
    assert read_variants(file) == [Variant("rs1", "A", "G", 0.5, ("1", 77))]


def packed(content: bytes, ending: str) -> bytes:
    if ending.lower().endswith(".gz"):
        return gzip.compress(content)
    return bytes(pa.compress(content, "zstd", asbytes=True)) if ending.endswith(".zst") else content


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_a_damaged_packed_list_is_named(ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / f"panel.afreq{ending}"
    whole = packed(HEAD.encode() * 99, ending)
    for content in (b"#CHROM", whole[:-9], whole[:20]):
        file.write_bytes(content)
        with pytest.raises(InvalidParameterError, match=facts(file.name)):
            read_frequencies(file)
    file.write_bytes(whole)
    monkeypatch.setattr(packed_text, "MOST_BYTES", 2**10)
    with pytest.raises(InvalidParameterError, match=facts(file.name, "MiB")):
        read_frequencies(file)
    file.unlink()
    with pytest.raises(InvalidParameterError, match=facts(file.name)):
        read_frequencies(file)


def test_frequencies_give_alleles_and_places_as_far_as_they_have_them(tmp_path: Path) -> None:
    line = "chr1\t77\trs1\tG\tA\t0.25\t100\n"
    assert parse_frequencies(HEAD + line) == {"rs1": WHOLE}
    assert parse_frequencies(HEAD + line.replace("chr1\t77", "0\t0").replace("\tG\t", "\t.\t")) == {
        "rs1": {"kind": "genotype", "allele": "A", "frequency": 0.25}
    }
    bare = "#CHROM\tID\tALT\tALT_FREQS\nX\trs1\tA\t0.25\n"
    assert parse_frequencies(bare)["rs1"] == {
        "kind": "genotype", "allele": "A", "frequency": 0.25, "chromosome": "X"
    }  # fmt: skip
    (tmp_path / "panel.afreq").write_text(HEAD + line, encoding="utf-8")
    (tmp_path / "study.toml").write_text(
        'format = "dpspca-dictionary-1"\n[genotypes]\nfile = "panel.afreq"\n', encoding="utf-8"
    )
    rest = {key: value for key, value in WHOLE.items() if key != "kind"}
    assert read_dictionary(tmp_path / "study.toml").features == (decode(Genotype, rest, name="rs1"),)


def test_a_draft_of_variants_has_alleles_and_places() -> None:
    kinds = [
        ("rs1", "copies of A, not G, at 1:77"),
        ("rs2", "copies of AC, not A, at X"),
        ("rs3", "copies of A, not G"),
    ]
    first, second, third = Dictionary.parse(tomllib.loads(draft(kinds))).features
    assert all(isinstance(each, Genotype) for each in (first, second, third))
    assert (first.allele, first.other_allele, first.chromosome, first.position) == ("A", "G", "1", 77)  # type: ignore[union-attr]
    assert (second.allele, second.chromosome, second.position) == ("AC", "X", None)  # type: ignore[union-attr]
    assert (third.other_allele, third.chromosome) == ("G", None)  # type: ignore[union-attr]
    with pytest.raises(InvalidParameterError, match=facts("'rs1'", "other_allele")):  # no sample has it
        Dictionary.parse(tomllib.loads(draft([("rs1", "copies of A, not 0, at 1:77")])))


def test_variants_that_a_file_may_confuse_are_remarked_on() -> None:
    assert not remarks(of(rs1=WHOLE))
    (either,) = remarks(of(rs1=WHOLE, rs2=WHOLE | {"other_allele": "T"}))
    assert "'rs2'" in either
    assert "dpspca data check" in either
    (strand,) = remarks(of(rs1=WHOLE | {"other_allele": ""}))
    assert "other_allele" in strand
    (place,) = remarks(of(rs1={key: value for key, value in WHOLE.items() if key != "position"}))
    assert "plink2 --freq cols=+pos" in place
    assert len(remarks(of(rs1={"kind": "genotype"}, rs2={"kind": "genotype"}))) == 2
