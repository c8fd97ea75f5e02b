"""All targets by their names."""

from typing import Final

from verification.fuzz.connections import BALANCED_TARGET, LOGINS_TARGET
from verification.fuzz.digests import DIGESTS_TARGET
from verification.fuzz.fetches import FETCH_TARGET
from verification.fuzz.http import HTTP_TARGET
from verification.fuzz.messages import FRAMES_TARGET, MESSAGES_TARGET
from verification.fuzz.produce import PRODUCE_TARGET
from verification.fuzz.record_sets import BATCHES_TARGET, OLD_SETS_TARGET
from verification.fuzz.reviews import REVIEWS_TARGET
from verification.fuzz.target import Target
from verification.fuzz.tokens import TOKENS_TARGET

TARGETS: Final[dict[str, Target]] = {
    target.name: target
    for target in (
        MESSAGES_TARGET,
        FRAMES_TARGET,
        BATCHES_TARGET,
        OLD_SETS_TARGET,
        DIGESTS_TARGET,
        PRODUCE_TARGET,
        FETCH_TARGET,
        BALANCED_TARGET,
        LOGINS_TARGET,
        TOKENS_TARGET,
        HTTP_TARGET,
        REVIEWS_TARGET,
    )
}
