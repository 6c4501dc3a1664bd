"""Whether an address that a server sends repeats the one that this client configured.

    scheme :// host [ : port ] [ / segment ]… [ / ]        scheme: http or https; host: a name, an IPv4 address, or an IPv6 address in []

Of two addresses of that form the scheme and the host are the same in letters of any case, and a port that is left out is the scheme's own.
Segments of the path are compared as they are written. An address of another form is no repetition, because programs that read it may
disagree about the server that it leads to: one with a user, a query, a fragment, an escape or a zone in its host, a dot segment, an empty
segment, white space, a backslash, or anything beyond ASCII.

RFC 3986, sections 3 and 6.2.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

_PORTS: Final = {"http": 80, "https": 443}
_ADDRESS: Final = re.compile(
    r"(?P<scheme>https?)://(?P<host>[a-z0-9][a-z0-9._-]*|\[[0-9a-f:.]+])(?::(?P<port>[1-9][0-9]{0,4}))?(?P<path>(?:/[\w.~!$&'()*+,;=:@%-]+)*)/?",
    re.IGNORECASE | re.ASCII,
)


def repeats(ours: Any, theirs: Any) -> bool:
    """Whether a server's value is the client's own, but for slashes at the end."""
    if isinstance(ours, str) and isinstance(theirs, str):
        return ours.rstrip("/") == theirs.rstrip("/")
    return ours is not None and bool(ours == theirs)


def leads_to(ours: Any, theirs: Any) -> bool:
    """Whether a server's value is an address of the client's own server, with the same path or the first segments of it."""
    own, sent = _parsed(ours), _parsed(theirs)
    if own is None or sent is None:
        return False
    # Whole segments: /api must not pass for the beginning of /api-of-another-tenant.
    return own.origin == sent.origin and own.segments[: len(sent.segments)] == sent.segments


class _Address(NamedTuple):
    origin: tuple[str, str, int]
    segments: list[str]


def _parsed(value: Any) -> _Address | None:
    """Return the parts of an address; None where it has another form."""
    found = _ADDRESS.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return None

    segments = found["path"].split("/")[1:]
    # A server that removes dot segments sees another path than one that does not.
    if any(unquote(each) in {".", ".."} for each in segments):
        return None

    # Host and scheme are compared without case, and the path with it: servers tell paths apart by case.
    scheme = found["scheme"].lower()

    return _Address((scheme, found["host"].lower(), int(found["port"] or _PORTS[scheme])), segments)
