"""``python -m diorite ARGUMENT...`` runs the program ``diorite``, which the wheels contain."""

import os
import shutil
import sys
import sysconfig
from pathlib import Path


def program():
    """The path of the program: of this environment, of the user, beside ``pip install --target``, or in the search path."""
    user = sysconfig.get_preferred_scheme("user")
    directories = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", user), Path(__file__).parents[1] / "bin"]
    found = (shutil.which("diorite", path=str(directory)) for directory in directories)
    return next(filter(None, found), None) or shutil.which("diorite")


def main():
    path = program()
    if path is None:
        print(
            "diorite: this installation has no program: install a wheel, which contains it, or the Debian package",
            file=sys.stderr,
        )
        return 1
    os.execv(path, [path, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
