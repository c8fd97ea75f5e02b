"""The way from the old message sets (magic 0 and 1) to record batches and back: what KIP-724 took from the brokers."""

from kproxy.codec.downconvert import DEFAULT_TRANSCODE, Downconverted, from_v2
from kproxy.codec.upconvert import ConvertedBatch, to_v2

__all__ = ["DEFAULT_TRANSCODE", "ConvertedBatch", "Downconverted", "from_v2", "to_v2"]
