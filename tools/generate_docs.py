"""Writes docs/configuration.md from the option table; with ``--check`` only tells whether it is up to date."""

import re
import sys
from itertools import groupby
from pathlib import Path

from kproxy.config import EXIT_CODES, Config, Option, options
from tools.one_page import write_or_check

PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"

_INTRODUCTION = """\
<!-- Made by `make generate` from kproxy/config/*_options.py; edit those. -->
# Configuration

Only `bootstrap.servers` is required. Each option has three spellings:

| where | spelling | example |
|---|---|---|
| YAML file, named by `--config FILE` or `KPROXY_CONFIG` | dotted name | `bootstrap.servers: [kafka-1:9092]` |
| environment | `KPROXY_`, capitals, underscores | `KPROXY_BOOTSTRAP_SERVERS=kafka-1:9092` |
| command line | two hyphens, hyphens | `--bootstrap-servers kafka-1:9092` |

Durations and sizes may have a unit: `retry.window.ms: 2min`, `buffer.memory: 256MiB` (ms, s, min, h, d; B, kB, MB, GB,
KiB, MiB, GiB). `deploy/kproxy.yaml` has every option with its default and a comment, `deploy/kproxy-minimal.yaml` what
a first start needs. Editors complete and check both by `docs/kproxy.schema.json`; their first line names it.

A flag overrides the environment, the environment overrides the file, and the file overrides the default. In the file
`log: {level: debug}` means the same as `log.level: debug`. An unknown option or an invalid value is an error; kproxy
reports all errors at once. `kproxy config check` takes the same options as `kproxy run` and prints every value with
its source (`--json` for scripts). It also loads every file that `kproxy run` loads before it serves: certificates,
keys, authorization rules, quotas, users, passwords and the token. It ends with the exit code that `kproxy run` would
have, and connects to nothing. `kproxy config show` prints those of a running kproxy.

After `kproxy config reload`, or SIGHUP, a running kproxy reads them again ([operations.md](operations.md#reload)).
*Change* says when a new value takes effect: `reload` at once, `new connections` for connections that are opened from
then on, `restart` only after a restart (kproxy names such options).

```yaml
bootstrap.servers: [kafka-1:9092, kafka-2:9092]
listen: 0.0.0.0:9092
advertised.address: gateway.example:9092
deliver.codecs:
  "legacy-shipper-*": {lz4: gzip, snappy: gzip}
log:
  format: json
```

Kubernetes sets variables such as `KPROXY_PORT` and `KPROXY_SERVICE_HOST` in pods if a service is named `kproxy`. These
are not options, and kproxy ignores them.
"""

_HEAD = "| option | default | what it is |\n|---|---|---|"
#: The end of a text's first sentence: a full stop before a capital letter, but not in 127.0.0.1 or "max.in.flight".
_SENTENCE = re.compile(r"(?<=[.)a-z0-9])\. (?=[A-Za-z0-9])")


def render() -> str:
    """Return the whole page: for each group a table with one sentence for each option, then the details."""
    sections = [_INTRODUCTION]
    for group, members in groupby(options(Config).values(), key=lambda entry: entry.group):
        entries = list(members)
        rows = "\n".join(map(_row, entries))
        sections.append(f"## {group}\n\n{_HEAD}\n{rows}\n")
        sections.extend(map(_details, entries))
    codes = "\n".join(f"| {code.value} | {text} |" for code, text in EXIT_CODES.items())
    sections.append(f"## Exit codes\n\n| code | meaning |\n|---|---|\n{codes}\n")
    return "\n".join(sections)


def _default(entry: Option) -> str:
    if entry.required:
        return "required"
    if entry.default_is_text:
        return entry.default_text
    return f"`{entry.default_text}`" + (f" {entry.kind.unit}" if entry.kind.unit else "")


def _row(entry: Option) -> str:
    summary = _SENTENCE.split(entry.reason, maxsplit=1)[0].rstrip(".")
    anchor = entry.name.replace(".", "")
    return f"| [`{entry.name}`](#{anchor}) | {_default(entry)} | {summary}. |"


def _details(entry: Option) -> str:
    default = "none, it is required" if entry.required else _default(entry)
    facts = f"Value: {entry.kind.label}. Default: {default}. Change: {entry.change.value}."
    return f"### `{entry.name}`\n\n{entry.reason}\n\n{facts}\n"


def main(arguments: list[str]) -> int:
    """Write or check; 1 if the check finds a difference."""
    return write_or_check(PAGE, render(), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
