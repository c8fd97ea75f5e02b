"""What spark-submit runs: a pipeline by the name of its file. The command line of people is ``kproxy pipeline run``."""

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    # spark-submit runs this file by its path, and its directory would hide modules of the same names.
    sys.path[:] = [entry for entry in sys.path if entry != str(Path(__file__).parent)]

    from kproxy.config import ConfigError, ExitCode
    from kproxy.errors import KproxyError
    from kproxy.spark.pipeline import load, run

    try:
        run(load(Path(sys.argv[1]), os.environ))
    except KproxyError as error:
        for line in getattr(error, "problems", [str(error)]):
            sys.stderr.write(f"kproxy: {line}\n")
        sys.exit(ExitCode.USAGE if isinstance(error, ConfigError) else ExitCode.FAILURE)
