"""A job as the message that its analyst receives."""

from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.server.job import JobRecord


def as_message(job: JobRecord, signed: bytes = b"") -> pb.Job:
    """Convert a job's state, and the signed job if it is given, to a message."""
    participants = [
        pb.Participant(name=name, reason=each.reason, answered=each.answered, asked=each.asked)
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
