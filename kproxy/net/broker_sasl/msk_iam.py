"""Tokens for Amazon MSK, signed with the AWS credentials of the environment (OAUTHBEARER at MSK's IAM port)."""

import time
from collections.abc import Awaitable, Callable

import trio
from aws_msk_iam_sasl_signer import MSKAuthTokenProvider

from kproxy.net.broker_sasl.token_sources import Issued


def signed_tokens(region: str) -> Callable[[], Awaitable[Issued]]:
    """A function that signs a token. OSError if there are no AWS credentials."""

    def sign() -> Issued:
        try:
            token, expires_ms = MSKAuthTokenProvider.generate_auth_token(region)
        except Exception as error:  # the library and those below it have no common error
            raise OSError(f"no token for MSK in {region}: {error}; see AWS's own credentials") from None
        return Issued(token, expires_ms / 1000 - time.time())

    async def ask() -> Issued:
        # may ask the machine's metadata service; given up on if it hangs
        return await trio.to_thread.run_sync(sign, abandon_on_cancel=True)

    return ask
