"""Who may join learner 0."""

from __future__ import annotations

import select
import socket
import struct

from pronk.learners.admission import Admission


def test_a_connection_that_is_reset_at_once_ends_nothing() -> None:
    admission = Admission("127.0.0.1", 2)
    with socket.create_connection(("127.0.0.1", admission.port)) as scanner:
        scanner.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset, not a close
    assert select.select(admission.sources, [], [], 20.0)[0]
    assert admission.handle(admission.sources[0], set()) is None
    admission.close()
