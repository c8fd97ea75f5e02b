"""Whether the sink's rows go to the kproxy that decides about them: elsewhere they would be in no transaction.

A broker, or another kproxy, takes rows as plain records, which are visible at once, and for good if the job fails.
So the driver connects to ``kafka.bootstrap.servers`` under a name that nobody else has, and asks the control API for
a client of that name. Each task says how many rows it has written when it prepares them, which kproxy compares.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final
from uuid import uuid4

from kproxy.spark.sink_control import Decider, client_id_of
from kproxy.spark.sink_options import BOOTSTRAP, SinkOptions
from kproxy.spark.spark_errors import KafkaError

#: A kproxy that is being replaced may have passed the connection's listener on, and not the control API yet.
_TRIES: Final = 3
_PAUSE_SECONDS: Final = 1.0


def check_one_kproxy(
    options: SinkOptions,
    decider: Decider,
    connect: Callable[[SinkOptions, str], AbstractContextManager[None]] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """KafkaError unless the Kafka address and the control API of the options are those of one kproxy.

    ``connect`` keeps a connection open under a client.id for the length of a block. KafkaError.
    """
    for left in reversed(range(_TRIES)):
        client_id = client_id_of(f"check-{uuid4().hex}")
        with (connect or _connected)(options, client_id):
            if decider.sees(client_id):
                return
        if left:
            sleep(_PAUSE_SECONDS)
    where = options.control.url or options.control.socket
    raise KafkaError(
        f"kafka.bootstrap.servers ({options.bootstrap}) is not the kproxy whose control API is at {where}: what is "
        "written there would be in no transaction. Set it to the address of that kproxy alone"
    )


@contextmanager
def _connected(options: SinkOptions, client_id: str) -> Iterator[None]:
    """KafkaError, with the reason: a wrong password or certificate, say."""
    with options.open_cluster(client_id) as cluster:
        try:
            cluster.topics()
        except KafkaError as error:
            raise KafkaError(f"{BOOTSTRAP} ({options.bootstrap}) does not answer as it should: {error}") from None
        yield
