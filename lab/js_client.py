"""The Node client eureka-js-client, installed once into the cache by npm with a lock file.

The tests of foreign clients use it; nothing else needs Node.
"""

import hashlib
import os
import shutil
from pathlib import Path

from lab.builds import find_tool, run_tool
from lab.cache import cache_folder, fill_folder_atomically, hold_cache_lock
from lab.errors import LabError
from lab.progress import say

_JS_CLIENT_FOLDER = Path(__file__).parent / "js-client"
_JS_CLIENT_FILE_NAMES = ("package.json", "package-lock.json", "client.js")


class NodeMissing(LabError):
    """Raised where Node or npm is missing."""


def provide_js_client_command() -> list[str]:
    """Return the command that runs the client; its argument is the client's configuration as JSON.

    Raises NodeMissing when Node, or npm to install it with, is missing.
    """
    node, npm = find_tool("node"), find_tool("npm")
    if node is None:
        raise NodeMissing("Node is missing: eureka-js-client runs in it (Debian package nodejs)")
    digest = hashlib.sha256(
        b"\0".join((_JS_CLIENT_FOLDER / name).read_bytes() for name in _JS_CLIENT_FILE_NAMES)
    )
    folder = cache_folder() / "js-client" / digest.hexdigest()[:12]
    if not folder.exists():
        if npm is None:
            raise NodeMissing("npm is missing: it installs eureka-js-client (Debian package npm)")
        with hold_cache_lock("js-client"):
            if not folder.exists():
                with fill_folder_atomically(folder) as content:
                    for name in _JS_CLIENT_FILE_NAMES:
                        shutil.copy(_JS_CLIENT_FOLDER / name, content)
                    run_tool(
                        "installing eureka-js-client with npm (once)",
                        [str(npm), "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
                        directory=content,
                        environment=os.environ,
                        log=cache_folder() / ".logs" / "js-client.log",
                    )
                say(f"eureka-js-client: installed, now in the cache ({folder})")
    return [str(node), str(folder / "client.js")]
