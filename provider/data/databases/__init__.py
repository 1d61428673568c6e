"""Readers of databases, and the table of scores that a steward may write into his own."""

from .duckdb_files import columns_of_duckdb, read_duckdb, triplets_of_duckdb
from .postgres_files import columns_of_postgres, read_postgres, triplets_of_postgres
from .score_tables import DATABASES, write_scores_table
from .sqlalchemy_files import columns_of_sqlalchemy, read_sqlalchemy, triplets_of_sqlalchemy
from .sqlite_files import columns_of_sqlite, read_sqlite, triplets_of_sqlite

__all__ = [
    "DATABASES",
    "columns_of_duckdb",
    "columns_of_postgres",
    "columns_of_sqlalchemy",
    "columns_of_sqlite",
    "read_duckdb",
    "read_postgres",
    "read_sqlalchemy",
    "read_sqlite",
    "triplets_of_duckdb",
    "triplets_of_postgres",
    "triplets_of_sqlalchemy",
    "triplets_of_sqlite",
    "write_scores_table",
]
