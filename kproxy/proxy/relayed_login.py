"""A login at the broker, where SASL of the client goes through kproxy."""

from kproxy.codec._generated.metadata import MetadataRequest
from kproxy.codec._generated.sasl_authenticate import SaslAuthenticateResponse
from kproxy.codec.header import encode_request
from kproxy.codec.messages import ApiKey
from kproxy.proxy.bare_tokens import BareTokens
from kproxy.proxy.context import Context
from kproxy.proxy.handlers.base import Exchange
from kproxy.proxy.handlers.sasl_handlers import PROOF
from kproxy.proxy.session_queues import Expected, Link
from kproxy.proxy.slots import Slot

_PREFIX = 4


class RelayedLogin:
    """What a session does for it."""

    def __init__(self, ctx: Context, link: Link) -> None:
        """``ctx.logged_in`` says whether the broker knows the client."""
        self._ctx = ctx
        self._link = link
        #: What follows a SaslHandshake v0.
        self.tokens: BareTokens | None = None
        #: Whether the broker was asked to show that the client has logged in.
        self.asked = False

    def prove(self) -> None:
        """Has the broker show that it takes requests on this connection, before anything else is done for the client.

        Only it knows when a login is complete; and kproxy acts as itself where it keeps transactions or sends again.
        """
        if self.asked:
            return
        self.asked = True
        version = max(1, self._ctx.broker_versions.get(ApiKey.METADATA, (1, 1))[0])
        slot = Slot(ApiKey.METADATA, version, 0, self._ctx.now, 0, silent=True)
        self._link.order.open(slot)
        self._link.ask(slot, PROOF, Exchange(None, version, version), MetadataRequest(topics=[]), None)

    def handshake(self, frame: bytearray) -> None:
        """Changes a SaslHandshake v0 to v1: the same on the wire, and tokens travel in SaslAuthenticate."""
        self.tokens = BareTokens.after_handshake(frame)
        frame[6:8] = b"\x00\x01"

    def token(self, tokens: BareTokens, frame: bytearray) -> None:
        """Sends a bare token on."""
        slot = Slot(ApiKey.SASL_AUTHENTICATE, 0, 0, self._ctx.now, len(frame))
        self._link.order.open(slot)
        request = encode_request(tokens.wrap(frame), 0, 0, self._ctx.client.client_id)
        self._link.expected.append(Expected(slot, 0, token=True))
        self._link.to_upstream.append(request)

    def answered(self, slot: Slot, frame: bytearray) -> None:
        """Takes the broker's response to a bare token."""
        response = SaslAuthenticateResponse.decode(memoryview(frame)[_PREFIX + 4 :], 0, self._ctx.share.of_response())
        token = BareTokens.unwrap(response)
        if token is None:
            self._link.fail(slot)
        else:
            self._link.answer_raw(slot, token)
