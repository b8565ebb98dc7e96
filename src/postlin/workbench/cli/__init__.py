"""The command ``postlin``."""

import sys

_MISSING = """The postlin command needs packages that are not installed ({name} is missing).
Install them with:  pip install jinja2 matplotlib pandas rich skops typer
"""


def main() -> None:
    """Run the command line, or say which packages it needs."""
    try:
        from postlin.workbench.cli.app import app
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "postlin":
            raise
        sys.stderr.write(_MISSING.format(name=error.name))
        sys.exit(2)
    except KeyboardInterrupt:  # the packages take a second to load, and longer on a busy machine
        sys.stderr.write("postlin: interrupted; there is nothing to keep.\n")
        sys.exit(130)
    app()
