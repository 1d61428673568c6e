"""A job as the message that its analyst receives, and refusals about its result."""

from dpspca.common.algorithms import catalogue
from dpspca.common.errors import RefusedError
from dpspca.common.job import JobSpec
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.server.job_states import JobRecord


def as_message(job: JobRecord, signed: bytes = b"") -> pb.Job:
    """Convert a job's state, and the signed job if it is given, to a message."""
    participants = [
        pb.Participant(
            name=name,
            reason=each.reason,
            answered=each.answered,
            asked=each.asked,
            awaiting_approval_since=each.awaiting_since,
            awaiting_approval_until=each.awaiting_until,
        )
        for name, each in job.participants.items()
    ]
    return pb.Job(
        job=job.name,
        analyst=job.analyst,
        data_set=job.data_set,
        state=job.state,
        reason=job.reason,
        answered=job.answered,
        queries=job.queries,
        step=job.step,
        bytes_moved=job.bytes_moved,
        submitted=job.submitted,
        ended=job.ended,
        signed_job=signed,
        participants=participants,
    )


def require_storable(spec: JobSpec, most: int) -> None:
    """Refuse a job whose components, their noise and a mean exceed the limit on results, before it costs privacy."""
    rows = spec.components * (2 if catalogue.find(spec.method).measures_loadings else 1)
    least = 8 * (rows + 1) * spec.schema.dimension
    if least > most:
        raise RefusedError(
            f"The model of this job takes {least} bytes; the coordinator keeps at most {most} bytes of results.",
            "Ask for fewer components or columns, or ask the coordinator's operator to raise the limit.",
        )


def no_result_error(job: JobRecord) -> RefusedError:
    """Return why a job has no result to send."""
    if job.state.is_final:
        return RefusedError(f"The job is {job.state} and has no result.", "Submit a new job.")
    return RefusedError(f"The job is {job.state} and has no result yet.", "Wait until it is done.")
