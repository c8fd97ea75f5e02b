"""The APIs of the fake broker, gathered into the table that the server serves from."""

from typing import Final

from kproxy.testing.fake_broker.apis import (
    connection_apis,
    group_apis,
    offset_apis,
    record_apis,
    topic_apis,
    transaction_admin_apis,
    transaction_apis,
)
from kproxy.testing.fake_broker.fake_api import Api

_MODULES: Final = (
    connection_apis,
    group_apis,
    offset_apis,
    record_apis,
    topic_apis,
    transaction_admin_apis,
    transaction_apis,
)
APIS: Final[dict[int, Api]] = {
    found.key: found for module in _MODULES for found in vars(module).values() if isinstance(found, Api)
}
