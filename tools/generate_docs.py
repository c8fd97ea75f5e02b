"""Writes docs/configuration.md from the option table; with ``--check`` only tells whether it is up to date."""

import sys
from itertools import groupby
from pathlib import Path

from kproxy.config import Config, ExitCode, Option, options
from tools.one_page import write_or_check

PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"

_INTRODUCTION = """\
<!-- Made by `make generate` from kproxy/config/model.py; edit that. -->
# Configuration

Only `bootstrap.servers` has to be given. Each option has three spellings:

| where | spelling | example |
|---|---|---|
| YAML file, named by `--config FILE` or `KPROXY_CONFIG` | dotted name | `bootstrap.servers: [kafka-1:9092]` |
| environment | `KPROXY_`, capitals, underscores | `KPROXY_BOOTSTRAP_SERVERS=kafka-1:9092` |
| command line | two hyphens, hyphens | `--bootstrap-servers kafka-1:9092` |

A flag beats the environment, that beats the file, that beats the default. In the file `log: {level: debug}` means the
same as `log.level: debug`. An option that does not exist, or a value that cannot be, is an error and never ignored;
all errors are shown at once. `kproxy config check` takes the same options as `kproxy run` and prints every value with
its source (`--json` for machines); `kproxy config show` prints those of a kproxy that runs.

`kproxy config reload`, or SIGHUP, has a running kproxy read them again ([operations.md](operations.md#reload)). The
column *change* says what that is worth: with `reload` another value holds at once, with `new connections` for those
that are made from then on, with `restart` it is named and waits for a restart.

```yaml
bootstrap.servers: [kafka-1:9092, kafka-2:9092]
listen: 0.0.0.0:9092
advertised.address: gateway.example:9092
deliver.codecs:
  "legacy-shipper-*": {lz4: gzip, snappy: gzip}
log:
  format: json
```

Kubernetes puts variables such as `KPROXY_PORT` and `KPROXY_SERVICE_HOST` into pods if a service is called `kproxy`;
these are no options, and kproxy passes over them.
"""

_HEAD = "| option | default | unit | value | change | what for, and why so |\n|---|---|---|---|---|---|"

EXIT_CODES = {
    ExitCode.OK: "all well",
    ExitCode.FAILURE: "failed while running",
    ExitCode.USAGE: "wrong command line or configuration; trying again does not help",
    ExitCode.CANNOT_BIND: "cannot listen: an address is in use, or is none of this host's",
    ExitCode.PROMISE_BROKEN: "`kproxy audit` found a promise broken",
}


def render() -> str:
    """The whole page."""
    sections = [_INTRODUCTION]
    for group, members in groupby(options(Config).values(), key=lambda entry: entry.group):
        rows = "\n".join(map(_row, members))
        sections.append(f"## {group}\n\n{_HEAD}\n{rows}\n")
    codes = "\n".join(f"| {code.value} | {text} |" for code, text in EXIT_CODES.items())
    sections.append(f"## Exit codes\n\n| code | meaning |\n|---|---|\n{codes}\n")
    return "\n".join(sections)


def _row(entry: Option) -> str:
    if entry.required:
        default = "none: required"
    elif entry.default_is_text:
        default = entry.default_text
    else:
        default = f"`{entry.default_text}`"
    cells = (f"`{entry.name}`", default, entry.kind.unit, entry.kind.label, entry.change.value, entry.reason)
    return f"| {' | '.join(cells)} |"


def main(arguments: list[str]) -> int:
    """Write or check; 1 if the check finds a difference."""
    return write_or_check(PAGE, render(), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
