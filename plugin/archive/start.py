"""Start the plugin with the libraries beside this file, or name the archive that fits this version of
Python.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
NEEDED, ARCHIVES = (
    HERE.joinpath(name).read_text(encoding="utf-8").split() for name in ("python-version", "archives")
)
FOUND = "{}.{}".format(*sys.version_info)  # in a form that every Python reads

if [FOUND] != NEEDED:
    fitting = [each for each in ARCHIVES if each.endswith("-cp{}{}.tar.gz".format(*sys.version_info))]
    other = "install " + fitting[0] + " in its place" if fitting else "there is none for " + FOUND
    sys.exit(
        "pulumi-resource-eurekube: this archive has libraries for Python " + NEEDED[0] + ", and the first"
        " Python on PATH is " + FOUND + ": " + other + ", or put python" + NEEDED[0] + " on PATH"
    )

sys.path.insert(0, str(HERE / "lib"))

from eurekube_provider.provider.server import main  # noqa: E402 - from the libraries

main()
