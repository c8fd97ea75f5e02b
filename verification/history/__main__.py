"""``python -m verification.history FILE``: check a history and say what was found."""

import json
import sys
from pathlib import Path

import click

from verification.history.check import check
from verification.history.files import MalformedHistory, read_history
from verification.history.report import as_json, make_console, verdict


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--json", "to_json", is_flag=True, help="Print one JSON object: counts and all anomalies.")
def main(file: Path, to_json: bool) -> None:
    """Name the anomalies of a history of JSON lines.

    Exit status: 0 none, 1 some, 2 the file is no history.
    """
    try:
        history = list(read_history(file))
    except MalformedHistory as error:
        raise click.UsageError(str(error)) from error
    anomalies = check(history)
    if to_json:
        click.echo(json.dumps(as_json(history, anomalies)))
    else:
        make_console().print(verdict(history, anomalies), markup=False)
    sys.exit(1 if anomalies else 0)


if __name__ == "__main__":
    main()
