"""A request that could not be taken at once: what it waits for, until when, and what becomes of it."""

from kproxy.codec.header import decode_request_header
from kproxy.codec.messages import ApiKey
from kproxy.codec.produce_layout import ProduceLayout, walk_request
from kproxy.proxy.commands import Blocking, Procedure
from kproxy.proxy.context import Context
from kproxy.proxy.produce_gate import ProduceGate

_API_KEY = int(ApiKey.PRODUCE)
_PREFIX = 4


class WaitingRequest:
    """The rest of a session's procedure for one request. Its shell carries out ``command``, then calls ``resume``."""

    def __init__(self, ctx: Context, gate: ProduceGate, frame: bytearray, steps: Procedure, command: Blocking) -> None:
        """``command`` is the first that the procedure has yielded."""
        self._ctx = ctx
        self._gate = gate
        self._frame = frame
        self._steps = steps
        self._layout = _layout(frame)
        #: What has to be carried out; None: the request was taken, or refused.
        self.command: Blocking | None = command
        self.waits()

    @property
    def due(self) -> float | None:
        """When it must be refused, in seconds since the epoch; None if it may wait longer."""
        return None if self._layout is None else self._gate.due(self._layout)

    @property
    def joins(self) -> bool:
        """Whether its connection has yet to be shown to the others of its producer: it will be stamped."""
        return self._layout is not None and self._gate.joins(self._frame, self._layout)

    def waits(self) -> None:
        """Lets no request of its producer overtake it over another connection, as soon as its own has joined these."""
        if self._layout is not None:
            self._gate.waits(self._layout)

    def resume(self, now: float) -> None:
        """Continues after the command. RemoteProtocolError, LocalProtocolError: the connection has to end."""
        self._ctx.now = now
        self.command = next(self._steps, None)
        if self.command is not None:
            self.waits()

    def refuse(self, now: float) -> None:
        """Answers a request that is due: nothing of it was written."""
        assert self._layout is not None
        self._ctx.now = now
        self._steps.close()
        self.command = None
        self._gate.refuse_late(self._frame, self._layout)

    def close(self) -> None:
        """Ends it: it was taken or refused, or its connection ends."""
        self._steps.close()
        self._gate.waits_no_more()


def _layout(frame: bytearray) -> ProduceLayout | None:
    """Where the batches of a request are; None: it is no Produce request."""
    if int.from_bytes(frame[_PREFIX : _PREFIX + 2], "big") != _API_KEY:
        return None
    header = decode_request_header(memoryview(frame)[_PREFIX:])
    return walk_request(frame, _PREFIX + header.size, header.api_version)
