"""DescribeConfigs (32): v0 knows only whether a value is the default, later versions where it comes from (KIP-226)."""

from typing import Any

from kproxy.budget import RequestBudget
from kproxy.codec.messages import Message
from kproxy.proxy.context import Context
from kproxy.proxy.handlers.base import Again, AsItIs, Exchange, Handler

_TOPIC = 2
_DYNAMIC_TOPIC_CONFIG = 1
_DEFAULT_CONFIG = 5


class DescribeConfigs(Handler):
    """v0 from the source of each value."""

    def lower(self, ctx: Context, exchange: Exchange, response: Any, budget: RequestBudget) -> Message | Again | AsItIs:
        if exchange.client_version == 0 and exchange.upstream_version > 0:
            for result in response.results:
                for row in result.configs:
                    if result.resource_type == _TOPIC:
                        row.is_default = row.config_source != _DYNAMIC_TOPIC_CONFIG
                    else:
                        row.is_default = row.config_source == _DEFAULT_CONFIG
        answer: Message = response
        return answer
