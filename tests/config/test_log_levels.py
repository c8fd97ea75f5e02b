import pytest

from kproxy.config import Config, options, show
from kproxy.config.values import LogLevelRule, Raw

KIND = options(Config)["log.level.overrides"].kind
RULES = (LogLevelRule("server", "debug"), LogLevelRule("tls", "error"))


@pytest.mark.parametrize(
    "raw", ["server=debug,tls=error", " Server = DEBUG , tls=error", {"server": "debug", "tls": "error"}]
)
def test_rules(raw: Raw) -> None:
    assert KIND.parse(raw) == RULES
    assert KIND.parse(show(RULES)) == RULES


@pytest.mark.parametrize("raw", ["", "{}"])
def test_none(raw: str) -> None:
    assert KIND.parse(raw) == ()


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ("sever=debug", "did you mean 'server'"),
        ("server=loud", "must be one of debug, info, warning, error"),
        ("=debug", "must not be empty"),
        ([], "must be SUBSYSTEM=LEVEL rules"),
    ],
)
def test_what_is_wrong_is_said(raw: Raw, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        KIND.parse(raw)
