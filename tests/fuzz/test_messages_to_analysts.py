"""Whatever a coordinator tells an analyst, it is read or refused in words."""

from typing import Any

from damage import require_words
from hypothesis import given
from messages import messages

from dpspca.client.jobs import JobStatus, Offer


@given(messages("Job"))
def test_t36_what_is_told_of_a_job_is_read_or_refused_in_words(told: Any) -> None:
    require_words(lambda: JobStatus.of(told).to_dict())


@given(messages("Offer"))
def test_t36_what_is_told_of_a_data_set_is_read_or_refused_in_words(told: Any) -> None:
    require_words(lambda: Offer.of(told).to_dict())
