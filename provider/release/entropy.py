"""Fresh system randomness for every draw: the only place from which released noise may come.

Each draw reads 32 bytes from the operating system after its query is known, and keys a stream of its own with them
and with its full name (``dpspca.common.privacy.keystream.keyed_stream``). There is no seed, and no way to set one.

No random state lives longer than one draw. So a copy of this process has no state to continue: a forked child, a second
thread, and a virtual machine that was cloned or resumed twice from one snapshot each read the system again. The name
matters if the copy includes the system's own generator, so that both copies read the same bytes: draws for different
queries, positions, jobs or providers still have unrelated words, because their names differ. Draws with the same name
then have the same words, so two copies of a provider give the same answer to the same query.
"""

import os
from typing import Final

from dpspca.common.privacy import Draw, KeyStream, keyed_stream

FRESH_BYTES: Final = 32


def system_entropy(draw: Draw) -> KeyStream:
    """Return the words for one draw. Call this when the query is known, and use the stream for this draw alone."""
    return keyed_stream(os.urandom(FRESH_BYTES), draw)
