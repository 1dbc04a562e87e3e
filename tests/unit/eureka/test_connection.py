"""Connection settings: written URLs become URLs and credentials, and credentials are never shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.eureka.connection import Connection, read_secret, split_credentials
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.protocol.peer import Peer

SECRET = "pa55-w0rd"


@pytest.mark.parametrize(
    ("text", "urls"),
    [
        ("http://a:8761/eureka", ("http://a:8761/eureka",)),
        ("http://a:8761/eureka/", ("http://a:8761/eureka",)),
        (" http://a/eureka/ , https://b/eureka/v2 ,", ("http://a/eureka", "https://b/eureka/v2")),
        ("http://a/eureka,http://a/eureka/", ("http://a/eureka",)),
        ("http://[fd00::1]:8761/eureka", ("http://[fd00::1]:8761/eureka",)),
        ("HTTP://a/eureka", ("http://a/eureka",)),
    ],
)
def test_urls_as_people_write_them(text: str, urls: tuple[str, ...]) -> None:
    """URLs are read as Spring's defaultZone: with commas, spaces, slashes at the end, and one server
    twice.
    """
    assert Connection.parse(text).service_urls == urls


def test_a_list_of_urls() -> None:
    """URLs may be given as a list instead of a text with commas."""
    assert Connection.parse(["http://a/e", "http://b/e"]).service_urls == ("http://a/e", "http://b/e")


def test_credentials_are_taken_out_of_urls() -> None:
    """User and password in one URL are removed from the URLs and used for all servers."""
    connection = Connection.parse(f"http://ann:{SECRET}@a/eureka,http://b/eureka")
    assert connection.service_urls == ("http://a/eureka", "http://b/eureka")
    assert (connection.user, connection.password) == ("ann", SECRET)


def test_credentials_are_percent_decoded() -> None:
    """Percent-encoded characters of user and password in a URL are decoded."""
    assert split_credentials("http://a%40b:c%2Fd%3A@h/e") == ("http://h/e", "a@b", "c/d:")


def test_credentials_of_their_own_win() -> None:
    """User and password given separately replace those in the URLs."""
    connection = Connection.parse("http://ann:old@a/eureka", "bob", SECRET)
    assert (connection.user, connection.password) == ("bob", SECRET)


def test_a_password_belongs_to_the_user_in_the_url() -> None:
    """A URL may name the user alone, with the password in a setting or a file; its own password wins."""
    assert Connection.parse("http://a@one/eureka", password="b").password == "b"
    assert Connection.parse("http://a:c@one/eureka", password="b").password == "c"
    assert Connection.parse("http://a@one/eureka").password == ""


def test_different_credentials() -> None:
    """URLs with different credentials are refused, unless one pair for all is given."""
    urls = f"http://ann:{SECRET}@a/e,http://bob:{SECRET}@b/e"
    with pytest.raises(ConfigurationError, match="different credentials") as caught:
        Connection.parse(urls)
    assert SECRET not in str(caught.value)
    assert Connection.parse(urls, "eve", "x").user == "eve"


@pytest.mark.parametrize("text", ["", " , ", []])
def test_no_url(text: str | list[str]) -> None:
    """The error for a missing URL names every setting that can give one."""
    with pytest.raises(ConfigurationError) as caught:
        Connection.parse(text)
    assert all(place in str(caught.value) for place in ("eurekube:url", "--eureka-url", "EUREKA_URL"))


@pytest.mark.parametrize(
    "text", ["a:8761/eureka", "ftp://a/eureka", "/eureka", "http://", "http://a:x/", "http://[a"]
)
def test_what_is_no_url(text: str) -> None:
    """A URL that is not http or https with a host is refused with an example of a valid one."""
    with pytest.raises(ConfigurationError, match="http://host:8761/eureka"):
        Connection.parse(text)


@pytest.mark.parametrize("text", ["http://a/eureka?x=1", "http://a/eureka#x", "http://a/p@b"])
def test_urls_with_more_than_a_path(text: str) -> None:
    """A URL with a query, a fragment, or an @ after the host (an unencoded password) is refused."""
    with pytest.raises(ConfigurationError, match="without query or fragment"):
        Connection.parse(text)


def test_a_missing_ca_file(tmp_path: Path) -> None:
    """A CA file that does not exist is refused when the settings are read."""
    with pytest.raises(ConfigurationError, match=r"none\.pem does not exist"):
        Connection.parse("https://a/e", ca_file=tmp_path / "none.pem")


def test_other_credentials(tmp_path: Path) -> None:
    """A token, a client certificate and a proxy are accepted, and their secrets are in no repr."""
    file = tmp_path / "client.pem"
    file.write_text("")
    connection = Connection.parse(
        "http://a/e", token=SECRET, client_certificate=file, proxy=f"http://ann:{SECRET}@proxy"
    )
    assert (connection.token, connection.client_certificate) == (SECRET, file)
    assert SECRET not in repr(connection)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"user": "ann", "token": "t"}, "not both"),
        ({"client_key": "key.pem"}, "without its client certificate"),
        ({"client_certificate": "none.pem"}, "none.pem does not exist"),
        ({"zone": "c"}, "no Eureka URL belongs to the zone 'c'"),
        ({"proxy": "nonsense://proxy"}, "proxy must look like http://host:3128"),
        ({"proxy": "http://proxy:99999"}, "proxy must look like http://host:3128"),
        ({"proxy": "http://"}, "proxy must look like http://host:3128"),
    ],
)
def test_settings_that_do_not_go_together(wrong: dict[str, str], words: str) -> None:
    """Contradictory settings are refused before any request, with a message about the correction."""
    with pytest.raises(ConfigurationError, match=words):
        Connection.parse("a=http://a/e", **wrong)


def test_the_own_zone_comes_first() -> None:
    """Servers of the client's zone are asked first, the others in the order in which they were given."""
    urls = "a=http://a/e,b=http://b1/e,http://c/e,b=http://b2/e"
    expected = ("http://b1/e", "http://b2/e", "http://a/e", "http://c/e")
    assert Connection.parse(urls, zone="b").service_urls == expected


def test_nothing_shows_a_password() -> None:
    """Neither the repr of a connection nor that of a peer shows the password."""
    connection = Connection.parse(f"http://ann:{SECRET}@a/eureka")
    peers = Peers(connection)
    shown = [repr(connection), str(connection), repr(peers), repr(Peer("http://a/eureka", connection))]
    peers.close()
    assert not any(SECRET in text for text in shown)


_odd = st.text("/?#@:,[]%!é ", max_size=3)
_urls = st.sampled_from(
    [
        "http://ann:{}@host:8761/eureka",
        "https://ann:{}@host",
        "ann:{}@host:8761/eureka",
        "ftp://ann:{}@host",
        "http://ann:{}@host:port/eureka",
        "http://{}@host/eureka?x=1",
        "http://ann:{}@",
    ]
)


@given(_urls, _odd, _odd)
def test_a_password_that_breaks_its_url_is_not_repeated(url: str, before: str, after: str) -> None:
    """No error about a malformed URL repeats the password, even an unencoded one."""
    text = url.format(f"{before}{SECRET}{after}")
    shown = ""
    try:
        connection = Connection.parse(text)
    except ConfigurationError as error:
        shown = str(error)
    else:
        shown = repr(connection).replace(f"user={connection.user!r}", "")
    assert SECRET not in shown


@pytest.mark.parametrize(
    "content",
    ["s3cr\nother", "s3cr\n\n# renew in May", "s3\rcr", "s3\x00cr", "s3cr\u2028other", "s3\tcr", ""],
    ids=range(7),
)
def test_a_secret_is_one_line(tmp_path: Path, content: str) -> None:
    """A secret file with several lines, control characters or no text is refused without repeating its
    content.
    """
    (tmp_path / "token").write_text(content, newline="")
    with pytest.raises(ConfigurationError, match=r"on one line|control characters") as caught:
        read_secret(str(tmp_path / "token"), "token-file")
    assert "s3" not in str(caught.value)
    assert str(tmp_path / "token") in str(caught.value)


def test_the_line_end_of_a_secret_is_left_out(tmp_path: Path) -> None:
    """The line end of a secret file is dropped, also a Windows one; inner spaces and non-ASCII letters are
    kept.
    """
    (tmp_path / "password").write_text(" pa\u00df w\u00a0rd \r\n", newline="")
    assert read_secret(str(tmp_path / "password"), "password-file") == "pa\u00df w\u00a0rd"


@pytest.mark.parametrize("token", ["hid\nden", "hid\u00e4den"])
def test_a_token_that_no_header_can_carry(token: str) -> None:
    """A token with a line break or a non-ASCII letter is refused, and not shown."""
    with pytest.raises(ConfigurationError, match="no header can carry") as caught:
        Connection.parse("http://h/e", token=token)
    assert "hid" not in str(caught.value)
