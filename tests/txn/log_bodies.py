"""Strategies for records of the transaction log."""

from hypothesis import strategies as st

from kproxy.codec._generated.transaction_snapshot import TransactionSnapshot
from kproxy.codec.messages import Message
from kproxy.txn.ids import Producer
from kproxy.txn.view_values import BrokerTransaction
from tests.txn import bodies

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_epoch = st.integers(-(1 << 15), (1 << 15) - 1)
_producers = st.builds(Producer, st.integers(-(1 << 63), (1 << 63) - 1), _epoch)
_places = st.dictionaries(st.tuples(names, st.integers(-5, 100)), st.integers(-1, (1 << 63) - 1), max_size=5)
_nonces = st.integers(0, (1 << 128) - 1)
_copies = st.dictionaries(
    st.tuples(names, st.integers(0, 9)),
    st.dictionaries(st.integers(0, (1 << 31) - 1), st.integers(0, 1 << 50), max_size=3),
    max_size=3,
)
_natives = st.builds(BrokerTransaction, names, _producers, st.integers(-128, 127), st.integers(0, (1 << 31) - 1))
any_body: st.SearchStrategy[Message] = st.one_of(
    st.builds(bodies.claim, _nonces, _producers, epochs=_epoch, generation=st.integers(0, 99), client=_producers),
    st.builds(bodies.claim, _nonces, _producers, continued=st.builds(Producer, st.integers(0, 1 << 62), _epoch)),
    st.builds(bodies.partitions, _nonces, _producers, _places, st.integers(-1, (1 << 31) - 1)),
    st.builds(bodies.offsets, _nonces, _producers, names, _places),
    st.builds(bodies.member, _nonces, _producers, _producers, _nonces, names),
    st.builds(bodies.native_member, _nonces, _producers, _producers, _nonces, names, _natives),
    st.builds(bodies.ended, _producers),
    st.builds(bodies.prepare, _nonces, _producers, st.lists(st.tuples(names, st.integers(-5, 100)), max_size=2)),
    st.builds(
        lambda nonce, main, parts, copies, batch: bodies.decision(
            nonce, main, True, parts, copies=dict.fromkeys(parts, copies), batch_id=batch
        ),
        _nonces,
        _producers,
        st.lists(_producers, max_size=3),
        _copies,
        st.none() | names,
    ),
    st.builds(bodies.mirrored, _producers, names),
    st.builds(bodies.expiry, _nonces),
    st.builds(bodies.reject, st.integers(-(1 << 63), (1 << 63) - 1)),
    st.builds(
        TransactionSnapshot,
        st.integers(0, 1 << 62),
        _nonces.map(bodies.nonce),
        st.integers(0, 9),
        st.integers(1, 9),
        st.binary(max_size=50),
    ),
)
