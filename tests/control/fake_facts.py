"""Facts made up: every field with a value of its own."""

from dataclasses import dataclass, field

from kproxy.proxy.facts import (
    BrokerDown,
    BrokerFact,
    ClientError,
    ClientFact,
    Failure,
    FleetClient,
    FleetFact,
    History,
    InstanceFact,
    LaneFact,
    LegacyClient,
    Rows,
    Status,
    Traffic,
    TransactionsFact,
)

NOW_MS = 1_700_000_100_000
ERROR = Failure("Produce: NOT_ENOUGH_REPLICAS", NOW_MS - 5_000)
CLIENT = ClientFact(
    client_id="billing",
    software_name="librdkafka",
    software_version="2.8.0",
    host="10.0.0.7",
    principal="User:ANONYMOUS",
    connections=3,
    connected_ms=NOW_MS - 3_600_000,
    versions={"Produce": 2, "Metadata": 1},
    requests=12_345,
    per_second=Traffic(2_500_000.0, 8_000.5, 240.0),
    last_error=ERROR,
)
LANE = LaneFact(4611686018427389904, 3, "leased", "billing", "10.0.0.7", "User:ANONYMOUS", 12, 5, 140, 2)
GIVEN_UP = LaneFact(None, None, "given up", "loader", "10.0.0.8", "User:ANONYMOUS", 0, 0, 0, 7)
BROKER = BrokerFact(
    node_id=1,
    address="kafka-1:9092",
    rack="a",
    up=True,
    down=None,
    release="4.1",
    features={"metadata.version": 27, "transaction.version": 2},
    port=19093,
    connections=4,
    errors=2,
    last_error=Failure("connect", NOW_MS - 60_000),
)
LOST = BrokerDown(NOW_MS - 90_000, "cannot connect to kafka-2:9092: Connection refused", "tried again every 2 s")
LOST_BROKER = BrokerFact(2, "kafka-2:9092", None, False, LOST, None, {}, None, 0, 0, None)
STATUS = Status(
    instance_id="box-1",
    version="0.1.0",
    started_ms=NOW_MS - 7_200_000,
    now_ms=NOW_MS,
    ready=True,
    reasons=[],
    troubles=[],
    listen="127.0.0.1:19092",
    bootstrap_servers="kafka-1:9092",
    connections=42,
    max_connections=10_000,
    connections_total=314,
    brokers_up=1,
    brokers_known=2,
    lanes=7,
    in_flight=5,
    in_doubt=9,
    unacknowledged_ms=140,
    buffered_bytes=1_048_576,
    buffer_memory=134_217_728,
    records_matched=77,
    records_matched_untimed=7,
    lost_records=9,
    per_second=Traffic(2_500_000.0, 8_000.5, 240.0),
    transactions=TransactionsFact(1, 2, 30_000, 0, 0, 0, 11, 4),
    refusals={"acks": 3},
    connections_refused={"max_connections": 1},
    broker_errors={"connect": 2},
    recent_errors=[ClientError("billing", "10.0.0.7", *ERROR)],
    legacy_clients=[LegacyClient("billing", "librdkafka", 12_000, ["Produce v2", "Fetch v3"], 3, NOW_MS)],
    legacy_total=1,
    history=History(2000, [1e6, 2e6, 2.5e6], [5e3, 7e3, 8e3], [100.0, 200.0, 240.0], 2.5, 25.0),
)

INSTANCE = InstanceFact(
    "box-1",
    "0.1.0",
    True,
    "node-7",
    "127.0.0.1:19092",
    "127.0.0.1:19644",
    NOW_MS - 7_200_000,
    NOW_MS - 3_000,
    42,
    1,
    [],
)
TROUBLED = INSTANCE._replace(
    instance_id="box-2", version="0.2.0", old=False, host="node-8", problems=["no broker has been reached yet"]
)
FLEET = FleetFact(
    announces=True,
    incomplete=False,
    ignored=3,
    newest_version="0.2.0",
    total=2,
    in_trouble=1,
    old=1,
    connections=84,
    instances=[TROUBLED, INSTANCE],
    legacy_total=1,
    legacy_clients=[FleetClient("billing", "librdkafka", 24_000, 2, ["Fetch v3", "Produce v2"])],
)


@dataclass
class FakeFacts:
    """Returns what a test puts in."""

    the_status: Status = STATUS
    the_clients: list[ClientFact] = field(default_factory=lambda: [CLIENT])
    the_lanes: list[LaneFact] = field(default_factory=lambda: [LANE, GIVEN_UP])
    left_out: int = 0
    the_fleet: FleetFact | OSError = FLEET
    the_brokers: list[BrokerFact] = field(default_factory=lambda: [BROKER, LOST_BROKER])

    def status(self) -> Status:
        return self.the_status

    def clients(self, client_id: str | None = None) -> Rows[ClientFact]:
        found = [row for row in self.the_clients if client_id in (None, row.client_id)]
        return Rows(len(found) + self.left_out, found)

    def lanes(self) -> Rows[LaneFact]:
        return Rows(len(self.the_lanes), self.the_lanes)

    async def fleet(self) -> FleetFact:
        if isinstance(self.the_fleet, OSError):
            raise self.the_fleet
        return self.the_fleet

    def brokers(self) -> Rows[BrokerFact]:
        return Rows(len(self.the_brokers), self.the_brokers)
