"""A fake Kafka broker: speaks what Kafka 4.4 speaks, keeps everything in memory, runs on a virtual clock.

The same contract tests run on it and on a real Kafka (``tests/contract``); ``NOT_MODELLED`` says where it stops.
``FakeCluster.control`` injects faults into one API key; see ``faults``. As a program:
``python -m kproxy.testing.fake_broker --port 9092``.
"""

from kproxy.testing.fake_broker.controls import Answer, Close, CloseAfter, Control, Delay, Drop, Edit
from kproxy.testing.fake_broker.fake_api import Call
from kproxy.testing.fake_broker.fake_cluster import ClusterConfig, FakeCluster
from kproxy.testing.fake_broker.fake_server import FakeServer, open_fake_cluster, wall_clock
from kproxy.testing.fake_broker.left_out import NOT_MODELLED
from kproxy.testing.fake_broker.logins import SaslRules

__all__ = [
    "NOT_MODELLED",
    "Answer",
    "Call",
    "Close",
    "CloseAfter",
    "ClusterConfig",
    "Control",
    "Delay",
    "Drop",
    "Edit",
    "FakeCluster",
    "FakeServer",
    "SaslRules",
    "open_fake_cluster",
    "wall_clock",
]
