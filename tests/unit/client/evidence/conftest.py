"""Evidence of two jobs, for all tests in this folder."""

from collections.abc import Iterator

import pytest
from collected_evidence import Case, collected_in


@pytest.fixture(scope="package")
def case(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    with collected_in(tmp_path_factory.mktemp("town")) as collected:
        yield collected
