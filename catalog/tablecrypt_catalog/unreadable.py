"""What a catalog's entry leads to and cannot be read is an error that says so, whatever PyIceberg or Arrow raise on the way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import ValidationError
from pyiceberg.typedef import Identifier

from tablecrypt.errors import FormatError, TablecryptError


@contextmanager
def refusing_unreadable(identifier: str | Identifier) -> Iterator[None]:
    """Turn errors of parsing a location or the metadata there into FormatError. Errors of the store and of this package stay what they are.

    Raises:
        FormatError: the location is none, or what lies there is not table metadata.
    """
    try:
        yield
    except TablecryptError:
        raise  # a ConfigurationError is a ValueError too
    except (ValueError, TypeError, AttributeError, LookupError, ValidationError) as error:
        name = ".".join(Catalog.identifier_to_tuple(identifier))
        raise FormatError(f"{name}: what the catalog's entry leads to cannot be read as table metadata: {error}") from error
