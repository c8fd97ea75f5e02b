"""Writes docs/configuration.md from the option table; with ``--check`` only tells whether it is up to date."""

import sys
from itertools import groupby
from pathlib import Path

from kproxy.config import EXIT_CODES, Config, Option, options
from kproxy.config.options import Change
from tools.one_page import write_or_check

PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"

_INTRODUCTION = """\
<!-- Made by `make generate` from kproxy/config/*_options.py; edit those. -->
# Configuration

Only `bootstrap.servers` is required. A flag overrides the environment, the environment the file, and the file the
default:

| where | spelling | example |
|---|---|---|
| command line | two hyphens, hyphens | `--bootstrap-servers kafka-1:9092` |
| environment | `KPROXY_`, capitals, underscores | `KPROXY_BOOTSTRAP_SERVERS=kafka-1:9092` |
| YAML file, named by `--config FILE` or `KPROXY_CONFIG` | dotted or nested name | `bootstrap.servers: [kafka-1:9092]` |

```yaml
bootstrap.servers: [kafka-1:9092, kafka-2:9092]
listen: 0.0.0.0:9092
advertised.address: gateway.example:9092
retry.window.ms: 2min     # units: ms, s, min, h, d
buffer.memory: 256MiB     # units: B, kB, MB, GB, KiB, MiB, GiB
deliver.codecs:
  "legacy-shipper-*": {lz4: gzip, snappy: gzip}
log:
  format: json
```

`deploy/kproxy-minimal.yaml` has what a first start needs, `deploy/kproxy.yaml` every option with a comment. Editors
complete and check both by `docs/kproxy.schema.json`, which their first line names.

**Check.** `kproxy config check` takes the options of `kproxy run`, prints every value with its source (`--json` for
scripts), and loads the files that `kproxy run` loads before it serves: certificates, keys, rules, quotas, users,
passwords, the token. It reports all errors, unknown options included, ends with the exit code that `kproxy run` would
have, and connects to nothing. `kproxy config show` prints the values of a running kproxy.

**Change.** `kproxy config reload`, or SIGHUP, makes a running kproxy read its options again
([operations.md](operations.md#reload)). An option with *reload* changes at once, one with *new connections* for
connections that are opened from then on, others after a restart.

Kubernetes sets variables such as `KPROXY_PORT` and `KPROXY_SERVICE_HOST` in pods if a service is named `kproxy`;
kproxy ignores them.
"""

_HEAD = "| option | default |\n|---|---|"


def render() -> str:
    """Return the whole page: for each group a table of options and defaults, then the details."""
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
    return f"| [`{entry.name}`](#{entry.name.replace('.', '')}) | {_default(entry)} |"


def _details(entry: Option) -> str:
    facts = ["required" if entry.required else f"default: {_default(entry)}", entry.kind.label]
    if entry.change is not Change.RESTART:
        facts.append(f"change: {entry.change.value}")
    return f"### `{entry.name}`\n\n{entry.reason}\n\n*{'; '.join(facts)}*\n"


def main(arguments: list[str]) -> int:
    """Write or check; 1 if the check finds a difference."""
    return write_or_check(PAGE, render(), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
