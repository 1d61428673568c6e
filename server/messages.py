"""A job in the form in which its analyst is told of it."""

from dpspca.protos.dpspca.v1 import federation_pb2 as pb

from .jobs import Job


def as_message(job: Job, signed: bytes = b"") -> pb.Job:
    """Write how a job stands, and what was signed where that is asked for."""
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
        questions=job.questions,
        step=job.step,
        bytes_moved=job.bytes_moved,
        submitted=job.submitted,
        ended=job.ended,
        signed_job=signed,
        participants=participants,
    )
