"""Losses in a real network: a server that disappears without closing its connections."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from eurekube_provider.kube.reflector import LONGEST_WATCH_SILENCE_SECONDS
from lab.netns import network_unavailable_reason, wrap_command_in_network

SERVER = """
import json, time
from http.server import BaseHTTPRequestHandler, HTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        event = json.dumps({"type": "BOOKMARK", "object": {}}) + "\\n"
        self.wfile.write(f"{len(event):x}\\r\\n{event}\\r\\n".encode())
        time.sleep(600)

HTTPServer(("10.9.0.2", 8001), Handler).serve_forever()
"""

WATCHER = """
import json, subprocess, sys, time
from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.kube.access import SERVICES, KubeAccess
from eurekube_provider.kube.reflector import LONGEST_WATCH_SILENCE_SECONDS
from lab.workloads import wait_for

access = KubeAccess.load(sys.argv[1])

def begun():
    events = access.watch(SERVICES.path(), {}, LONGEST_WATCH_SILENCE_SECONDS)
    try:
        next(events)
    except KubernetesError:  # it does not listen yet
        return None
    return events

events = wait_for(begun, "the server", 30)
subprocess.run(["ip", "-n", "server", "link", "set", "far", "down"], check=True)
gone = time.monotonic()
try:
    next(events)
except KubernetesError as error:
    print(json.dumps({"seconds": time.monotonic() - gone, "error": str(error)}))
"""

NETWORK = """\
ip netns add server
ip link add near type veth peer name far netns server
ip address add 10.9.0.1/30 dev near
ip link set near up
ip -n server address add 10.9.0.2/30 dev far
ip -n server link set far up
nsenter --net=/run/netns/server "$1" -c "$2" &
trap "kill $!" EXIT
"$1" -c "$3" "$4"
"""

KUBECONFIG = {
    "clusters": [{"name": "far", "cluster": {"server": "http://10.9.0.2:8001"}}],
    "users": [{"name": "nobody", "user": {}}],
    "contexts": [{"name": "far", "context": {"cluster": "far", "user": "nobody"}}],
    "current-context": "far",
}


@pytest.mark.slow
def test_a_watch_of_a_server_that_is_gone_without_a_word_ends_soon(tmp_path: Path) -> None:
    """A watch ends soon after its server's node dies, by TCP keepalive probes alone."""
    if reason := network_unavailable_reason():
        pytest.skip(reason)
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(KUBECONFIG))
    command = ["sh", "-ec", NETWORK, "sh", sys.executable, SERVER, WATCHER, str(kubeconfig)]
    done = subprocess.run(
        wrap_command_in_network(command),
        capture_output=True,
        text=True,
        timeout=2 * LONGEST_WATCH_SILENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert "watch /api/v1/services: the connection to http://10.9.0.2:8001 broke" in document["error"]
    assert 10 < document["seconds"] < 45
