"""DescribeConfigs (32): versions 1-4. Topics (type 2) and brokers (4), with the few settings that the fake knows."""

from kproxy.codec._generated.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestDescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResponseDescribeConfigsResourceResult,
    DescribeConfigsResponseDescribeConfigsResult,
)
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker.configs import BROKER_DEFAULTS, DEFAULT_CONFIG, DYNAMIC_TOPIC_CONFIG, TOPIC_DEFAULTS
from kproxy.testing.fake_broker.fake_api import Api, Call

_TOPIC = 2
_BROKER = 4


async def handle(call: Call) -> DescribeConfigsResponse:
    """Describe each resource."""
    request: DescribeConfigsRequest = call.request
    return DescribeConfigsResponse(results=[_describe(call, resource) for resource in request.resources])


def _describe(
    call: Call, wanted: DescribeConfigsRequestDescribeConfigsResource
) -> DescribeConfigsResponseDescribeConfigsResult:
    answer = DescribeConfigsResponseDescribeConfigsResult(
        resource_type=wanted.resource_type, resource_name=wanted.resource_name, error_message=None
    )
    settings: dict[str, str] = {}
    defaults = TOPIC_DEFAULTS
    if wanted.resource_type == _TOPIC and wanted.resource_name in call.cluster.topics:
        settings = call.cluster.topics[wanted.resource_name].config
    elif wanted.resource_type == _TOPIC:
        answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return answer
    elif wanted.resource_type == _BROKER:
        defaults = BROKER_DEFAULTS | {"transaction.max.timeout.ms": str(call.cluster.config.transaction_max_timeout_ms)}
    else:
        answer.error_code = ErrorCode.INVALID_REQUEST
        return answer
    for name, value in sorted({**defaults, **settings}.items()):
        if wanted.configuration_keys is None or name in wanted.configuration_keys:
            source = DYNAMIC_TOPIC_CONFIG if name in settings else DEFAULT_CONFIG
            answer.configs.append(
                DescribeConfigsResponseDescribeConfigsResourceResult(
                    name=name, value=value, config_source=source, documentation=None
                )
            )
    return answer


API = Api(ApiKey.DESCRIBE_CONFIGS, (1, 4), handle)
