"""What ``config check`` prints."""

from collections.abc import Iterable, Mapping, Sequence

from kproxy.cli.flags import OPTIONS
from kproxy.cli.tables import new_console, new_table
from kproxy.config import Loaded, show


def report(loaded: Loaded | None, problems: list[str]) -> dict[str, object]:
    """For JSON: ``ok``, ``problems``, and ``options`` with value and source of each."""
    found = {} if loaded is None else {name: _entry(loaded, name) for name in OPTIONS}
    return {"ok": not problems, "problems": problems, "options": found}


def print_table(loaded: Loaded) -> None:
    """A table of option, value, unit and source."""
    rows = []
    for name, entry in OPTIONS.items():
        value = getattr(loaded.config, entry.attribute)
        shown = f"({entry.default_text})" if value is None and entry.default_text != "off" else show(value)
        rows.append((name, shown, entry.kind.unit, loaded.sources[name]))
    _print("Effective configuration of kproxy", ("value", "unit", "source"), rows)


def print_running(rows: Iterable[Mapping[str, str | int]]) -> None:
    """A table of the options of a kproxy that runs, as its control API tells them."""
    columns = ("value", "unit", "source", "change")
    shown = [(str(row["name"]), *(show(row[column]) for column in columns)) for row in rows]
    _print("Configuration in force", columns, shown)


def _print(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    from rich.table import Column

    name_column = Column("option", no_wrap=True, overflow="ignore")  # to be copied whole
    table = new_table(name_column, *columns, title=title)
    for row in rows:
        table.add_row(*row, style="dim" if "default" in row else "bold")
    new_console().print(table, markup=False)


def _entry(loaded: Loaded, name: str) -> dict[str, object]:
    value = getattr(loaded.config, OPTIONS[name].attribute)
    plain = value if isinstance(value, (bool, int, str)) or value is None else show(value)
    return {"value": plain, "source": loaded.sources[name]}
