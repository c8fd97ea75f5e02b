"""Colours of the report, and how its page looks."""

from collections.abc import Mapping
from typing import Final

#: On white, and on black.
_COLOURS: Final = {
    "ground": ("#ffffff", "#14171b"),
    "panel": ("#f5f6f8", "#1d2127"),
    "ink": ("#1b1f24", "#e6e9ed"),
    "faint": ("#5c6670", "#9aa4af"),
    "line": ("#d5dae0", "#343b44"),
    "held": ("#1a7f4b", "#4cc38a"),
    "warning": ("#9a6200", "#e5a53b"),
    "broken": ("#c0262d", "#f2686e"),
    "committed": ("#2f6fbb", "#5b9ae0"),
    "aborted": ("#9aa4af", "#6c7681"),
    "undecided": ("#d98a00", "#e5a53b"),
    "control": ("#c9d0d8", "#454d57"),
    "unprotected": ("#d98a00", "#e5a53b"),
    "repeated": ("#c0262d", "#f2686e"),
}
#: The picture uses these, too.
LIGHT: Final[Mapping[str, str]] = {name: light for name, (light, _) in _COLOURS.items()}
_DARK: Final = {name: dark for name, (_, dark) in _COLOURS.items()}
_RULES: Final = """
:root { color-scheme: light dark; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1080px; padding: 24px; background: var(--ground); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 4px; } h2 { font-size: 1.15rem; margin: 36px 0 4px; }
p { margin: 4px 0 8px; max-width: 80ch; } .faint { color: var(--faint); }
.verdict { border-left: 6px solid var(--held); background: var(--panel); padding: 14px 18px; margin: 18px 0; }
.verdict.warnings { border-color: var(--warning); } .verdict.broken { border-color: var(--broken); }
.verdict b { font-size: 1.2rem; }
.facts { display: flex; flex-wrap: wrap; gap: 10px 32px; margin: 12px 0; padding: 0; list-style: none; }
.facts b { display: block; font-size: 1.15rem; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; } .wide table { width: max-content; }
table { border-collapse: collapse; font-size: .85rem; margin: 8px 0; }
th, td { text-align: left; padding: 4px 10px; border-bottom: 1px solid var(--line); vertical-align: top; }
td { max-width: 36ch; overflow-wrap: break-word; } td.number { text-align: right; font-variant-numeric: tabular-nums; }
summary { cursor: pointer; }
.asked { display: grid; grid-template-columns: max-content 1fr; gap: 2px 14px; margin: 18px 0 8px; }
.asked dt { color: var(--faint); } .asked dd { margin: 0; overflow-wrap: anywhere; }
.badge { display: inline-block; padding: 0 8px; border-radius: 9px; font-size: .8rem; color: var(--ground); }
.badge.broken { background: var(--broken); } .badge.warning { background: var(--warning); }
.badge.unknown { background: var(--faint); } .badge.held { background: var(--held); }
svg { width: 100%; max-width: 760px; height: auto; font: 12px system-ui, sans-serif; fill: var(--ink); }
.axis { stroke: var(--line); } .legend span { margin-right: 16px; white-space: nowrap; }
.legend i { display: inline-block; width: 11px; height: 11px; margin-right: 5px; }
"""


def _variables(colours: Mapping[str, str]) -> str:
    return ":root { " + " ".join(f"--{name}: {value};" for name, value in colours.items()) + " }"


_TONES: Final = ("committed", "aborted", "undecided", "control", "unprotected", "repeated")

CSS: Final = "\n".join(
    (
        _variables(LIGHT),
        f"@media (prefers-color-scheme: dark) {{ {_variables(_DARK)} }}",
        _RULES,
        *(f"rect.{tone} {{ fill: var(--{tone}); }} i.{tone} {{ background: var(--{tone}); }}" for tone in _TONES),
    )
)
"""The page's style, in full."""
