"""The program `pleach` of this package."""

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path


def program():
    """The path of the program: next to this interpreter's scripts, or in PATH."""
    own = Path(sysconfig.get_path("scripts")) / "pleach"
    neighbour = Path(__file__).parent.parent / "bin" / "pleach"  # where `pip install --target` puts it
    for path in (own, neighbour):
        if path.is_file() and os.access(path, os.X_OK):
            return str(path)
    found = shutil.which("pleach")
    if found is None:
        raise FileNotFoundError("pleach is not installed; install the wheel, or add the program's folder to PATH")
    return found


def pleach(*arguments, check=True, **options):
    """Runs `pleach ARGUMENTS` to its end and returns a subprocess.CompletedProcess; `options` are those of subprocess.run.

    Raises subprocess.CalledProcessError where the program fails, unless `check` is False.
    """
    return subprocess.run([program(), *map(str, arguments)], check=check, **options)
