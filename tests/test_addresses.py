"""A server that repeats the client's address is no attack; an address that leads anywhere else is one."""

from __future__ import annotations

import string
from urllib.parse import urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from urllib3.util import parse_url

from tablecrypt import properties as names
from tablecrypt.addresses import leads_to
from tablecrypt.errors import ConfigurationError

CLIENT = "https://catalog.example:8443/api/v2/wh%20a"
SAME = [
    *(CLIENT, f"{CLIENT}/", "HTTPS://Catalog.EXAMPLE:8443/api/v2/wh%20a", "https://catalog.example:8443"),
    *("https://catalog.example:8443/", "https://catalog.example:8443/api", "https://catalog.example:8443/api/v2/"),
]
OTHERS = [
    # Another origin.
    *("http://catalog.example:8443/api", "https://catalog.example/api", "https://catalog.example:443/api", "https://catalog.example:84430"),
    *(
        "https://catalog.example.:8443/api",
        "https://sub.catalog.example:8443/api",
        "https://catalog.example.evil:8443",
        "https://evil:8443",
    ),
    *(
        "https://catalog%2eexample:8443/api",
        "https://catalog.example:08443/api",
        "https://catalog.example:/api",
        "httpſ://catalog.example:8443",
    ),
    # Another path.
    *("https://catalog.example:8443/ap", "https://catalog.example:8443/API", "https://catalog.example:8443/api/v2/wh%20a/more"),
    *("https://catalog.example:8443/api/v2/wh a", "https://catalog.example:8443/api/v2/wh%20A", "https://catalog.example:8443/%61pi"),
    *("https://catalog.example:8443//api", "https://catalog.example:8443/api//v2", "https://catalog.example:8443/api/../api"),
    *("https://catalog.example:8443/./api", "https://catalog.example:8443/api/%2e%2E/api", "https://catalog.example:8443/api\\..\\v2"),
    # Parts that this package does not compare.
    *("https://user@catalog.example:8443/api", "https://user:word@catalog.example:8443", "https://catalog.example:8443@evil/api"),
    *(
        "https://catalog.example:8443/api?q=1",
        "https://catalog.example:8443/api#part",
        "https://catalog.example:8443?",
        "//catalog.example:8443",
    ),
    *(
        " https://catalog.example:8443/api",
        "https://catalog.example:8443/api\n",
        "https://catalog.example\t:8443/api",
        "https:catalog.example:8443",
    ),
    *("https://evil\\@catalog.example:8443/api", "https://catalog.example:8443\\@evil", "", None, 8443, ["https://catalog.example:8443"]),
]
LABELS = st.text(string.ascii_letters + string.digits, min_size=1, max_size=6)
HOSTS = st.one_of(
    st.lists(LABELS, min_size=1, max_size=3).map(".".join),
    st.ip_addresses(v=4).map(str),
    st.ip_addresses(v=6).map(lambda each: f"[{each}]"),
)
SEGMENTS = st.lists(st.text(string.ascii_letters + string.digits + "-_~!$&'()*+,;=:@", min_size=1, max_size=6), max_size=4)


@pytest.mark.parametrize("sent", SAME)
def test_the_same_address_is_ignored(sent: str) -> None:
    assert leads_to(CLIENT, sent)
    assert names.taken_from_server("the server", {"uri": sent, "prefix": "wh"}, {"uri": CLIENT}) == {"prefix": "wh"}


@pytest.mark.parametrize("sent", OTHERS, ids=repr)
def test_any_other_address_is_refused(sent: object) -> None:
    assert not leads_to(CLIENT, sent)
    with pytest.raises(ConfigurationError, match="uri"):
        names.taken_from_server("the server", {"uri": sent}, {"uri": CLIENT})


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("https://h", "https://H:443/"),
        ("https://h:443/a", "https://h/a/"),
        ("http://h/a", "http://h:80"),
        ("http://[2001:DB8::1]:8181/a", "http://[2001:db8::1]:8181"),
        ("HTTP://my_catalog:8181/catalog/", "http://my_catalog:8181/catalog"),
    ],
)
def test_ports_and_letters_have_one_meaning(ours: str, theirs: str) -> None:
    assert leads_to(ours, theirs)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("http://h:443", "https://h"),
        ("http://[::1]:8181", "http://[0:0:0:0:0:0:0:1]:8181"),
        ("http://[fe80::1%25eth0]", "http://[fe80::1%25eth1]"),
        ("https://user:word@h/a", "https://h/a"),
        ("https://h/a/../b", "https://h/a"),
        ("sqlite:///catalog.db", "sqlite:///"),
        (None, "https://h"),
    ],
)
def test_what_is_not_plainly_the_same_is_another(ours: str | None, theirs: str) -> None:
    assert not leads_to(ours, theirs)


def test_of_other_endpoints_only_the_same_text_is_ignored() -> None:
    for name in ("s3.endpoint", "oauth2-server-uri"):
        with pytest.raises(ConfigurationError, match=name):
            names.taken_from_server("the server", {name: "https://h"}, {name: "https://h/a"})


@given(
    scheme=st.sampled_from(["http", "https"]),
    host=HOSTS,
    port=st.one_of(st.none(), st.integers(1, 65535)),
    segments=SEGMENTS,
    kept=st.integers(0, 4),
    spelt=st.sampled_from([str, str.upper, str.lower, str.title]),
    slash=st.sampled_from(["", "/"]),
)
def test_every_spelling_of_a_prefix_is_the_same_server(
    scheme: str, host: str, port: int | None, segments: list[str], kept: int, spelt: type[str], slash: str
) -> None:
    default = {"http": 80, "https": 443}[scheme]
    ours = f"{scheme}://{host}{f':{port}' if port else ''}{''.join(f'/{each}' for each in segments)}"
    shown = f":{port}" if port not in {None, default} else f":{default}" if slash else ""
    theirs = f"{spelt(f'{scheme}://{host}')}{shown}{''.join(f'/{each}' for each in segments[:kept])}{slash}"

    assert leads_to(ours, theirs)
    assert not leads_to(f"{scheme}://other.{host}" if not host.startswith("[") else f"{scheme}://other", theirs)


ALPHABET = st.text(string.ascii_letters + string.digits + ":/@?#[]%\\. \t\n-_;ſ。／", max_size=12)


@given(before=ALPHABET, middle=st.sampled_from(["catalog.example", "CATALOG.example:8443", "catalog.example:8443/api", ""]), after=ALPHABET)
@example("https://evil.example\\@", "catalog.example:8443", "")
@example("https://", "catalog.example:8443", "@evil.example")
def test_two_other_parsers_find_the_same_server_in_whatever_is_ignored(before: str, middle: str, after: str) -> None:
    for sent in (before + middle + after, f"https://{before}{middle}{after}", f"https://catalog.example:8443{before}{after}"):
        if leads_to(CLIENT, sent):
            parts, requested = urlsplit(sent), parse_url(sent)
            assert (parts.scheme, parts.hostname, parts.port, parts.username) == ("https", "catalog.example", 8443, None)
            assert (requested.scheme, requested.host, requested.port, requested.auth) == ("https", "catalog.example", 8443, None)
            assert urlsplit(CLIENT).path.split("/")[: len(parts.path.rstrip("/").split("/"))] == parts.path.rstrip("/").split("/")
            assert not (parts.query or parts.fragment)
