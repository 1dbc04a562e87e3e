"""The pytest fixtures, loaded in a user's own run by the package's entry point."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

pytest_plugins = ["pytester"]


def is_answered(url: str) -> bool:
    """Return whether a process listens at a service URL."""
    parts = urlsplit(url)
    with socket.socket() as asking:
        return asking.connect_ex((parts.hostname, parts.port)) == 0


def test_a_test_has_a_server_that_is_gone_after_it(pytester: pytest.Pytester) -> None:
    """The fixture's server answers within its test; neither port nor thread outlives the test."""
    pytester.makepyfile(
        """
        import threading, urllib.request
        from pathlib import Path

        BEFORE = {*threading.enumerate()}

        def test_one(eureka):
            assert urllib.request.urlopen(f"{eureka.url}/apps").status == 200
            Path("url").write_text(eureka.url)

        def test_another():
            assert [one.name for one in {*threading.enumerate()} - BEFORE if "eureka" in one.name] == []
        """
    )
    pytester.runpytest().assert_outcomes(passed=2)
    assert not is_answered((pytester.path / "url").read_text())


def test_a_server_is_gone_after_a_test_that_failed(pytester: pytest.Pytester) -> None:
    """Servers of ``eureka_servers`` are stopped after a failed test."""
    pytester.makepyfile(
        """
        from pathlib import Path

        def test_one(eureka_servers):
            Path("urls").write_text(" ".join(eureka_servers(2).urls))
            raise RuntimeError
        """
    )
    pytester.runpytest().assert_outcomes(failed=1)
    urls = (pytester.path / "urls").read_text().split()
    assert [is_answered(url) for url in urls] == [False, False]


def test_fixtures_beside_each_other_share_nothing(pytester: pytest.Pytester) -> None:
    """``eureka`` and each call of ``eureka_servers`` are separate Eurekas."""
    pytester.makepyfile(
        """
        def test_one(eureka, eureka_servers):
            three, one = eureka_servers(3), eureka_servers()
            assert len({*eureka.urls, *three.urls, *one.urls}) == 5
            three.register("RATING", "vm-1", "192.0.2.1", 8080)
            three.wait_registered("RATING", {"vm-1": {}})
            eureka.assert_not_registered("RATING")
            one.advance(91)
            three.assert_registered("RATING", {"vm-1": {}})
        """
    )
    pytester.runpytest().assert_outcomes(passed=1)


def test_workers_of_xdist_have_servers_of_their_own(pytester: pytest.Pytester) -> None:
    """Tests in two xdist processes that register one application see only their own instance."""
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("number", range(4))
        def test_one(eureka, number):
            eureka.register("RATING", f"vm-{number}", "192.0.2.1", 8080)
            eureka.assert_registered("RATING", {f"vm-{number}": {}})
        """
    )
    pytester.runpytest("-n", "2").assert_outcomes(passed=4)


def test_a_failed_assertion_shows_the_difference_and_the_line(pytester: pytest.Pytester) -> None:
    """A failed assertion's traceback has the test's line and the message, and no frame of the plugin."""
    pytester.makepyfile(
        """
        def test_one(eureka):
            eureka.register("RATING", "vm-1", "192.0.2.1", 8080)
            eureka.assert_registered("RATING", {"vm-1": {"port": 9090}})
        """
    )
    output = pytester.runpytest().stdout
    output.fnmatch_lines(
        [
            '>*eureka.assert_registered("RATING", {"vm-1": {"port": 9090}})',
            "E*AssertionError: RATING at http://127.0.0.1:*/eureka is not as expected:",
            "E*! vm-1: port is 8080, expected 9090",
            "E*registered there: RATING (1)",
        ]
    )
    output.no_fnmatch_line("*assertions.py*")


def test_a_projects_own_fixture_of_the_name_wins(pytester: pytest.Pytester) -> None:
    """A project's own fixture ``eureka`` overrides the plugin's."""
    pytester.makeconftest("import pytest\n\n@pytest.fixture\ndef eureka(): return 'ours'\n")
    pytester.makepyfile("def test_one(eureka): assert eureka == 'ours'")
    pytester.runpytest().assert_outcomes(passed=1)


def test_the_plugin_can_be_left_out(pytester: pytest.Pytester) -> None:
    """``-p no:eurekube`` removes the fixtures."""
    pytester.makepyfile("def test_one(eureka): pass")
    done = pytester.runpytest_subprocess("-p", "no:eurekube")
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["*fixture 'eureka' not found*"])


def test_the_plugin_is_named_where_plugins_are_not_autoloaded(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``-p eurekube`` loads the plugin when plugins are not loaded automatically, and is harmless
    otherwise.
    """
    pytester.makepyfile("def test_one(eureka): pass")
    pytester.runpytest_subprocess("-p", "eurekube").assert_outcomes(passed=1)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.runpytest_subprocess().assert_outcomes(errors=1)
    pytester.runpytest_subprocess("-p", "eurekube").assert_outcomes(passed=1)


def test_a_run_without_the_fixtures_pays_for_next_to_nothing(tmp_path: Path) -> None:
    """The plugin loads only its own module and the packages around it."""
    program = (
        "import sys, pytest; before = {*sys.modules}; import eurekube_provider.testing.plugin;"
        " print(*sorted({*sys.modules} - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [
        "eurekube_provider",
        "eurekube_provider.testing",
        "eurekube_provider.testing.plugin",
        "eurekube_provider.version",
    ]


def test_the_fixtures_need_no_extra(tmp_path: Path) -> None:
    """The fixtures work with the package's core requirements, and do not load Pulumi."""
    (tmp_path / "test_one.py").write_text(
        "import sys\n\ndef test_one(eureka):\n"
        "    eureka.register('RATING', 'vm-1', '192.0.2.1', 8080)\n"
        "    eureka.assert_registered('RATING', {'vm-1': {}})\n"
        "    assert 'pulumi' not in sys.modules\n"
    )
    missing = ("jinja2", "kubernetes", "prometheus_client", "pulumi_kubernetes", "rich")
    program = (
        f"import sys, pytest; sys.modules.update(dict.fromkeys({missing})); sys.exit(pytest.main(['-q']))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_public_names_are_these() -> None:
    """The public names of the testing package are fixed, because users' tests import them."""
    from eurekube_provider import testing

    assert testing.__all__ == ["Eureka", "EurekubeMocks", "StartEureka"]
    assert [getattr(testing, name).__name__ for name in testing.__all__] == testing.__all__
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = testing.Nothing
