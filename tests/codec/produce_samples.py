"""Produce requests and answers with chance content, always the same for a seed."""

from typing import Any

from tests.support.samples import Sampler


def request_sample(version: int, seed: int) -> Any:
    return Sampler("ProduceRequest", version, seed, tags=True).message()[0]


def response_sample(version: int, seed: int) -> Any:
    return Sampler("ProduceResponse", version, seed, tags=True).message()[0]
