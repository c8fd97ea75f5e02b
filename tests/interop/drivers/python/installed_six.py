"""Old releases of kafka-python on the Python of today."""

import sys


def use() -> None:
    """Python 3.12 cannot import the copy of six inside kafka-python 1.4 and 2.0: put today's six in its place."""
    try:
        import six
    except ImportError:
        return
    import six.moves.urllib.parse

    for name, module in list(sys.modules.items()):
        if name == "six" or name.startswith("six."):
            sys.modules["kafka.vendor." + name] = module
    for name in ("queue", "range", "urllib"):
        getattr(six.moves, name)
    sys.modules["kafka.vendor.six"] = six
    sys.modules["kafka.vendor.six.moves"] = six.moves
