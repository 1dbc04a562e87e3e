"""The HTML page at ``/`` of a model server: the servers of the cluster, and the instances of one of them.

Programs read the pages of real servers, too. The texts that they look for are Spring's here, each on a line
of its own.
"""

from __future__ import annotations

from html import escape
from urllib.parse import quote

from eurekube_provider.dev.eureka.cluster import EurekaCluster, NoAnswer
from eurekube_provider.dev.eureka.eureka_server import EurekaServer
from eurekube_provider.dev.eureka.instance_registry import Lease

_HTML_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="5">
<title>Eureka for development</title>
<style>body{font:15px/1.5 system-ui,sans-serif;margin:2em} table{border-collapse:collapse}
td,th{text-align:left;padding:.2em 1.2em .2em 0;border-bottom:1px solid #ccc}</style></head><body>
<h1>Eureka for development</h1>
<p>For development and tests: all of it is in memory.</p>"""

_TABLE_HEADER_ROW = (
    "<tr><th>Application</th><th>Instance</th><th>Address</th><th>Status</th><th>Lease ends in</th></tr>"
)


def render_front_page(cluster: EurekaCluster, url: str) -> str:
    """Return the HTML of a server's page, or raise NoAnswer where the server is down."""
    if url in cluster.down:
        raise NoAnswer(url)
    server = cluster.servers[url]
    registry = server.registry
    figures = {
        "Uptime": server.uptime,
        "Lease expiration enabled": "true" if registry.are_evictions_enabled else "false (self-preservation)",
        "Renews threshold": registry.renewal_threshold,
        "Renews (last min)": registry.renewals.last_minute,
    }
    leases = sorted(registry.all_leases(), key=lambda lease: (lease.holder.app, lease.holder.id))
    lines = [_HTML_HEAD, "<h2>Servers</h2>", "<ul>"]
    lines += [f'<li><a href="{one.removesuffix("eureka")}">{one}</a></li>' for one in cluster.urls]
    lines += ["</ul>", f"<h2>{url}</h2>", "<table>"]
    lines += [f"<tr><td>{name}</td><td>{value}</td></tr>" for name, value in figures.items()]
    lines += ["</table>", "<h2>Instances currently registered with Eureka</h2>", "<table>", _TABLE_HEADER_ROW]
    for lease in leases:
        lines += _render_row(server, lease)
    lines += ["</table>", "" if leases else "<p>None.</p>", "</body></html>"]
    return "\n".join(lines)


def _render_row(server: EurekaServer, lease: Lease) -> list[str]:
    info = lease.holder
    port = info.fields["port"] if info.fields["port"]["@enabled"] == "true" else info.fields["securePort"]
    overridden = " (set over its own)" if info.overridden == info.status else ""
    place = f"/eureka/apps/{quote(info.app, safe='')}/{quote(info.id, safe='')}"
    return [
        "<tr>",
        f"<td><b>{escape(info.app)}</b></td>",
        "<td>",
        f'<a href="{place}" target="_blank">{escape(info.id)}</a>',
        "</td>",
        f"<td>{escape(info.fields['hostName'])}:{port['$']}</td>",
        f"<td>{info.status}{overridden}</td>",
        f"<td>{server.lease_seconds_left(lease)} s</td>",
        "</tr>",
    ]
