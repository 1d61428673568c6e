"""Reads a job's model as a coordinator sends it. Its shape has to be one that the job allows."""

from dpspca.common.job import JobSpec
from dpspca.common.results import Model

from . import bounds
from .errors import FederationError, TooMuchError
from .statements import NO_TRUST


def model_from(spec: JobSpec, content: bytearray) -> Model:
    """Read a model, and check that its shape is the one that the job asks for, or one of fewer components if it may."""
    heading = bounds.heading_of(spec)
    if content.find(b"\n", 0, heading) < 0:
        raise TooMuchError.of(f"a model whose heading is longer than {heading} bytes", heading)
    model = Model.from_bytes(bytes(content))
    count, fewest = len(model.components), 1 if spec.options.get("fewer") is True else spec.components
    if not fewest <= count <= spec.components or model.components.shape[1] != spec.schema.dimension:
        raise FederationError("The coordinator sent a model of a shape that the job did not ask for.", NO_TRUST)
    return model
