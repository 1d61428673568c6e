"""Three hospitals with OMOP databases find out together which diagnoses, drugs and measurements occur together.

Run it with ``python examples/clinical.py [FOLDER]``. It starts a PostgreSQL server on this machine with a database for
each hospital, and fills it with made-up patients. A public list of concepts says what each one is called and between
which numbers it lies. A real federation over mutual TLS runs one job. Then each hospital writes its patients' scores
into its own database, where they stay. docs/clinical.md follows it step by step.
"""

import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import psycopg

from dpspca.common.names import PartyName, Role
from dpspca.common.trust import Authority, identity

HOSPITALS = {"north": 0.3, "south": -0.3, "west": 0.0}
"""How much the average patient is ill, which differs between hospitals."""
PATIENTS = 3000
CONDITIONS = {
    "Type 2 diabetes mellitus": (201826, -1.6, 1.6, 0.0), "Hypertensive disorder": (316866, -0.8, 1.3, 0.0),
    "Hyperlipidemia": (432867, -0.9, 1.3, 0.0), "Obesity": (433736, -1.2, 1.2, 0.0),
    "Ischemic heart disease": (4185932, -2.2, 1.2, 0.2), "Chronic obstructive lung disease": (255573, -1.8, 0.0, 1.8),
    "Asthma": (317009, -1.6, 0.0, 1.5), "Pneumonia": (255848, -2.0, 0.0, 1.2),
    "Osteoarthritis": (80180, -1.5, 0.1, 0.0), "Depressive disorder": (440383, -1.5, 0.1, 0.2),
    "Migraine": (318736, -2.2, 0.0, 0.0),
}  # fmt: skip
"""For each name: the concept, how frequent it is, and how it goes with the two things that patients differ in."""
DRUGS = {
    "metformin": (1503297, -1.5, 1.6, 0.0), "atorvastatin": (1545958, -1.0, 1.3, 0.0),
    "lisinopril": (1308216, -1.0, 1.2, 0.0), "albuterol": (1154343, -1.4, 0.0, 1.8),
    "omeprazole": (923645, -1.0, 0.2, 0.1), "acetaminophen": (1125315, -0.4, 0.0, 0.1),
}  # fmt: skip
MEASUREMENTS = {
    "Hemoglobin A1c": (3004410, "%", 3, 15, 5.7, 1.2, 0.6), "Body mass index": (3038553, "kg/m2", 10, 60, 27, 3.5, 3.0),
    "Systolic blood pressure": (3004249, "mmHg", 60, 240, 125, 9, 10),
}  # fmt: skip
"""For each name: the concept, its unit, its public range and centre, how it goes with the first, and its spread."""

TABLES = """
CREATE TABLE concept (concept_id integer PRIMARY KEY, concept_name varchar NOT NULL);
CREATE TABLE person (person_id bigint PRIMARY KEY, gender_concept_id integer, year_of_birth integer);
CREATE TABLE condition_occurrence (person_id bigint, condition_concept_id integer, condition_start_date date);
CREATE TABLE drug_exposure (person_id bigint, drug_concept_id integer, drug_exposure_start_date date);
CREATE TABLE measurement (
    person_id bigint, measurement_concept_id integer, measurement_date date, value_as_number numeric
);
"""
COVARIATES = """
CREATE TABLE covariates AS
SELECT person_id AS row_id, condition_concept_id::bigint AS covariate_id, 1.0::float8 AS covariate_value
FROM condition_occurrence GROUP BY 1, 2
UNION ALL SELECT person_id, drug_concept_id, 1.0 FROM drug_exposure GROUP BY 1, 2
UNION ALL SELECT person_id, measurement_concept_id, avg(value_as_number)::float8 FROM measurement GROUP BY 1, 2
UNION ALL SELECT person_id, gender_concept_id, 1.0 FROM person WHERE gender_concept_id = 8532
"""
"""One line for each patient and concept, as FeatureExtraction writes it: of several measurements, their mean."""
STUDY = """\
# dictionary.toml
format = "dpspca-dictionary-1"
title = "Three hospitals"

[concepts]
file = "concepts.csv"
"""
JOB = """\
# job.toml
data_set = "cohort"
dictionary = "dictionary.toml"
unit = "person-replace-one"
norm_bound = 3.0           # public: nine diagnoses and drugs count in full
components = 2
method = "analyze-gauss"
centering = "private"      # otherwise the first component would be how frequent each concept is
minimum_providers = 3

[budget]
epsilon = 2.0
delta = 1e-6
"""
SETTINGS = """\
# north/settings.toml
coordinator = "COORDINATOR"
identity = "identity"
revocations = "revoked.pem"
policy = "policy.toml"

[data_sets]
cohort = "warehouse.postgresql"

[persons]
cohort = "persons.txt"

[reading.cohort]
table = "covariates"
triplets = { row = "row_id", column = "covariate_id", value = "covariate_value", rows = "persons.txt" }

[dictionaries.cohort]
file = "../dictionary.toml"
"""
OWN = {"west": '[dictionaries.cohort.columns]\n"Hemoglobin A1c" = { factor = 0.0915, offset = 2.15 }\n'}
"""West measures in mmol/mol."""


# --- A database server with made-up patients --------------------------------------------------------------------------


@contextmanager
def server() -> Iterator[str]:
    """Run a PostgreSQL server on a socket in a folder of its own. Yield how to connect. It cannot run as root."""
    found = [shutil.which(name) or next(map(str, Path("/usr/lib/postgresql").glob(f"*/bin/{name}")), None)
             for name in ("initdb", "postgres")]  # fmt: skip
    if not all(found):
        sys.exit("PostgreSQL is not installed. On Debian: apt-get install postgresql")
    initdb, postgres = map(str, found)
    folder, who = Path(tempfile.mkdtemp(prefix="dpspca-")), list[str]()
    if os.geteuid() == 0:
        owner = pwd.getpwnam("postgres")
        os.chown(folder, owner.pw_uid, owner.pw_gid)
        who = ["setpriv", f"--reuid={owner.pw_uid}", f"--regid={owner.pw_gid}", "--clear-groups"]
    make = [*who, initdb, "-D", str(folder / "data"), "-U", "postgres", "-A", "trust", "-E", "UTF8"]
    subprocess.run(make, check=True, cwd="/", stdout=subprocess.DEVNULL)  # noqa: S603  # an installed program
    start = [*who, postgres, "-D", str(folder / "data"), "-k", str(folder), "-c", "listen_addresses="]
    running = subprocess.Popen(start, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603
    try:
        how = f"host={folder} user=postgres"
        while not answers(how):
            time.sleep(0.1)
        yield how
    finally:
        running.send_signal(signal.SIGINT)
        running.wait()
        shutil.rmtree(folder)


def answers(how: str) -> bool:
    """Tell whether the server is there."""
    try:
        psycopg.connect(f"{how} dbname=postgres").close()
    except psycopg.OperationalError:
        return False
    return True


def fill(database: psycopg.Connection, name: str, rng: np.random.Generator) -> np.ndarray:
    """Make up the patients of a hospital, and return in what they differ."""
    database.execute(TABLES)
    ill = rng.standard_normal((PATIENTS, 2))
    ill[:, 0] += HOSPITALS[name]
    people = rng.permutation(10 * PATIENTS)[:PATIENTS] + 1
    copy(database, "concept", [(each[0], name) for table in (CONDITIONS, DRUGS, MEASUREMENTS)
                               for name, each in table.items()])  # fmt: skip
    sexes, born = rng.choice([8507, 8532], PATIENTS), rng.integers(1930, 2000, PATIENTS)
    copy(database, "person", list(zip(people.tolist(), sexes.tolist(), born.tolist(), strict=True)))
    for table, concepts in (("condition_occurrence", CONDITIONS), ("drug_exposure", DRUGS)):
        for concept, usual, *along in concepts.values():
            has = rng.random(PATIENTS) < 1 / (1 + np.exp(-(usual + ill @ along)))
            times = rng.integers(1, 4, PATIENTS) * has
            copy(database, table, [(who, concept, "2025-03-01") for who in np.repeat(people, times).tolist()])
    for concept, unit, low, high, centre, along, spread in MEASUREMENTS.values():
        values = np.clip(centre + along * ill[:, 0] + spread * rng.standard_normal(PATIENTS), low, high)
        values = (values - 2.15) / 0.0915 if name == "west" and unit == "%" else values
        measured = rng.random(PATIENTS) < 0.7
        lines = zip(people[measured].tolist(), values[measured].round(1).tolist(), strict=True)
        copy(database, "measurement", [(who, concept, "2025-06-01", value) for who, value in lines])
    database.execute(COVARIATES)
    return ill[np.argsort(people)]


def copy(database: psycopg.Connection, table: str, lines: list[tuple]) -> None:
    """Add lines to a table."""
    with database.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN") as into:
        for line in lines:
            into.write_row(line)


def write_dictionary(folder: Path) -> None:
    """Write what all hospitals agree on: the concepts with their names, and the public ranges of measurements."""
    lines = ["concept_id,concept_name,unit,low,high,centre"]
    lines += [f"{each[0]},{name},,,," for table in (CONDITIONS, DRUGS) for name, each in table.items()]
    lines += [f"{concept},{name},{unit},{low},{high},{centre}" for name, (concept, unit, low, high, centre, *_)
              in MEASUREMENTS.items()]  # fmt: skip
    (folder / "concepts.csv").write_text("\n".join([*lines, "8532,Female,,,,\n"]), encoding="utf-8")
    (folder / "dictionary.toml").write_text(STUDY, encoding="utf-8")
    (folder / "job.toml").write_text(JOB, encoding="utf-8")


# --- A federation -----------------------------------------------------------------------------------------------------


def now() -> datetime:
    """Return the time."""
    return datetime.now(UTC)


class Federation:
    """The commands that its parties type, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority.init(folder / "authority", "town", now)

    def quietly(self, *words: str) -> str:
        """Run a command and return what it prints."""
        command = [sys.executable, "-m", "dpspca", *words]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            sys.exit(f"dpspca {' '.join(words)}: {done.stderr}{done.stdout}")
        return done.stdout

    def run(self, command: str) -> str:
        """Run a command as a person would, and show it with what it prints."""
        print("$", command, flush=True)
        _, *words = re.findall(r"'[^']*'|\S+", command)
        printed = self.quietly(*(word.strip("'") for word in words))
        print(printed, end="", flush=True)
        return printed

    def enrol(self, role: Role, name: str) -> None:
        """Give a party a key and a certificate, as `dpspca identity` and `dpspca ca` do."""
        home = self.folder / name / "identity"
        home.parent.mkdir()
        request = identity.request(home, PartyName(self.authority.federation, role, name))
        identity.install(home, self.authority.sign(request, days=30), self.authority.certificate_pem)
        (home.parent / "revoked.pem").write_bytes(self.authority.revocation_list())

    @contextmanager
    def started(self, role: str, name: str, until: str) -> Iterator[str]:
        """Start a daemon and wait for a word in its log."""
        words = [sys.executable, "-m", "dpspca", role, "start", "--config", f"{name}/settings.toml"]
        path = self.folder / f"{name}.log"
        with path.open("w", encoding="utf-8") as log:
            running = subprocess.Popen(words, cwd=self.folder, stderr=log)  # noqa: S603  # our own program
        try:
            while until not in (text := path.read_text(encoding="utf-8")):
                if running.poll() is not None:
                    sys.exit(text)
                time.sleep(0.1)
            yield text
        finally:
            running.terminate()
            running.wait()


def main(folder: Path) -> None:
    """Make up three hospitals, run a job, and write scores into their databases."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    os.umask(0o077)
    rng = np.random.default_rng(0)
    write_dictionary(folder)
    town = Federation(folder)
    town.enrol(Role.COORDINATOR, "hub")
    town.enrol(Role.ANALYST, "ada")
    for name in HOSPITALS:
        town.enrol(Role.PROVIDER, name)
    with ExitStack() as stack:
        how = stack.enter_context(server())
        ill = {name: hospital(folder / name, how, rng) for name in HOSPITALS}
        own = 'listen = "127.0.0.1:0"\nidentity = "identity"\nrevocations = "revoked.pem"\n'
        (folder / "hub" / "settings.toml").write_text(own, encoding="utf-8")
        log = stack.enter_context(town.started("coordinator", "hub", "listening"))
        address = re.findall(r"127\.0\.0\.1:[1-9]\d*", log)[0]
        (folder / "ada.toml").write_text(f'coordinator = "{address}"\nidentity = "ada/identity"\n', encoding="utf-8")
        town.run("dpspca dictionary check dictionary.toml")
        policy = town.run("dpspca policy suggest job.toml --analyst ada")
        for name in HOSPITALS:
            settings = SETTINGS.replace("COORDINATOR", address).replace("north", name) + OWN.get(name, "")
            (folder / name / "settings.toml").write_text(settings, encoding="utf-8")
            (folder / name / "policy.toml").write_text(policy, encoding="utf-8")
        town.run("dpspca data check --config north/settings.toml")
        for name in HOSPITALS:
            stack.enter_context(town.started("provider", name, "Connected"))
        town.run("dpspca datasets --config ada.toml")
        town.run("dpspca run job.toml --config ada.toml --out model.dpspca")
        town.run("dpspca model show model.dpspca")
        town.run("dpspca model export model.dpspca --out loadings.csv")
        found = []
        for name in HOSPITALS:
            town.run(f"dpspca model project model.dpspca {name}/warehouse.postgresql --config {name}/settings.toml "
                     f"--data-set cohort --out {name}/warehouse.postgresql --table pcs")  # fmt: skip
            with psycopg.connect(f"{how} dbname={name}") as database:
                found += database.execute("SELECT pc1, pc2 FROM pcs ORDER BY id::bigint").fetchall()
    together = abs(np.corrcoef(np.array(found).T, np.concatenate(list(ill.values())).T)[:2, 2:])
    print(f"Correlation of components with what patients differ in: {together[0, 0]:.2f} and {together[1, 1]:.2f}")


def hospital(folder: Path, how: str, rng: np.random.Generator) -> np.ndarray:
    """Make up a hospital's database, and write how to connect and the person of each row."""
    name = folder.name
    with psycopg.connect(f"{how} dbname=postgres", autocommit=True) as database:
        database.execute(f"CREATE DATABASE {name}")
    with psycopg.connect(f"{how} dbname={name}") as database:
        ill = fill(database, name, rng)
        people = database.execute("SELECT person_id FROM person ORDER BY person_id").fetchall()
    (folder / "persons.txt").write_text("".join(f"{who}\n" for (who,) in people), encoding="utf-8")
    (folder / "warehouse.postgresql").write_text(f"{how} dbname={name}\n", encoding="utf-8")
    return ill


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("out/examples/clinical"))
