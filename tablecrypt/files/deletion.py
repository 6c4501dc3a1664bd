"""Which files may be deleted or written over for a table: the one place that decides it.

Metadata files, manifests, logs, listings and workers' messages say which files a table has, or had. They are data: any writer of the
storage may have written them. What they name is deleted only if

    it lies below a folder of the table    those in the pin, or what the caller names. Metadata that is seen for the first time says only
                                           where its own folder metadata lies: `names_location`
    it is named as such a file is          data.parquet, x.avro, x.orc, x.puffin, x.stats, x.metadata.json, a journal or record of ours
    its spelling has one meaning           no "..", ".", "//" in a bucket, percent-encoded slash or dot segment, "?", "#", "*", control
                                           character
    links do not lead out of the folder    on a local disk, the real folder of the file is below the real folder of the table
    no other table lies around it          nearer than the table's own location (table/other_tables.py)
    nobody else needs it                   no live share of the table names it (table/shares.py), by whatever spelling: `place_of`

A file that is written over must be no link itself either: the bytes would go where it leads. To delete a link harms nothing there.

`s3`, `s3a` and `s3n` are one store, so are `abfs` and `abfss`, `file:` and no scheme; another scheme, bucket, account or case is another
place. A folder itself, a whole bucket or the root of a disk is never a table's folder by metadata alone.

A process that may change links in the table's folder while a file is deleted is not kept out: it could delete the file itself.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, TypeAlias
from urllib.parse import unquote

from tablecrypt.arguments import check_text, names_of
from tablecrypt.errors import ConfigurationError, DeletionRefusedError
from tablecrypt.files.raw_output import operation_of_journal

FilePlace: TypeAlias = tuple[str, str, str]
"""The store, the bucket or host, and the path, as `place_of` gives them."""

LOCAL: Final = "file"
_SAME_STORE: Final = {"s3a": "s3", "s3n": "s3", "": LOCAL, "abfss": "abfs", "wasbs": "wasb"}
_WITHOUT_AUTHORITY: Final = ("hdfs", "viewfs", "memory")
_URI: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?://(?P<authority>[^/]*))?(?P<path>/.*)?", re.DOTALL)
_AMBIGUOUS: Final = re.compile(r"[\x00-\x1f\x7f?#*\[\]\\]")
_FILE_NAMES: Final = re.compile(r"[^/]+\.(?:parquet|avro|orc|puffin|stats|metadata\.json|metadata\.json\.gz)", re.IGNORECASE)
SHARE_RECORDS: Final = "_tablecrypt-shares"
"""The folder, below the table's metadata folder, of the records of shares; in that of a share, of its mark."""
_SHARE_RECORD_NAMES: Final = re.compile(rf"metadata/{SHARE_RECORDS}/[0-9a-f-]{{36}}\.entries")
_CHECKSUMS: Final = re.compile(r"\.(?P<of>[^/]+)\.crc")
_UNPINNED: Final = "no source that this client trusts says where the table is: name its folder"


@dataclass(frozen=True)
class ParsedLocation:
    """A location in its parts: the store, the bucket, host or account, and the names on the way from its root.

    Names of a local path are without empty ones; in a bucket an empty name is a name.
    """

    store: str
    authority: str
    names: tuple[str, ...]

    @classmethod
    def of(cls, location: str) -> ParsedLocation:
        """Parse a location.

        Raises:
            ConfigurationError: its spelling has more than one meaning, or none.
        """
        problem = unusable_location(location)
        if problem is not None:
            raise ConfigurationError(f"{location!r} {problem}")

        match = _URI.fullmatch(location)
        scheme, authority, path = (match["scheme"], match["authority"] or "", match["path"] or "") if match else ("", "", location)
        store = _SAME_STORE.get(scheme, scheme)

        if store == LOCAL:
            # file://host/path would be another machine's file to one reader and /path to another.
            if authority:
                raise ConfigurationError(f"{location!r} names a host, but a local file has no host")
            # As PyIceberg does with a path that has no scheme.
            path = path if match else os.path.abspath(path)
            return cls(store, "", tuple(name for name in path.split("/") if name))

        # A location without a bucket names no place that could be compared with a table's folder.
        if not authority and store not in _WITHOUT_AUTHORITY:
            raise ConfigurationError(f"{location!r} names no bucket")

        return cls(store, authority, tuple(path.removeprefix("/").rstrip("/").split("/")) if path.strip("/") else ())

    @property
    def local_path(self) -> str:
        """The path of a local file or folder."""
        return "/" + "/".join(self.names)

    def below(self, root: ParsedLocation) -> tuple[str, ...] | None:
        """Return the names that lead here from a folder; None where this is not below it."""
        depth = len(root.names)
        if (self.store, self.authority, self.names[:depth]) != (root.store, root.authority, root.names) or len(self.names) <= depth:
            return None
        return self.names[depth:]


class FileOwners(Protocol):
    """Tells which files are other tables'."""

    def reason_against(self, location: str, trusted: tuple[str, ...]) -> str | None:
        """Return why a file is another table's; None where it is not.

        Args:
            location: of a file; its spelling has one meaning.
            trusted: folders that are the table's.
        """


@dataclass(frozen=True)
class DeletionScope:
    """The folders below which files may be deleted or written over. An empty one allows nothing.

    Attributes:
        folders: as they are spelled in metadata or by the caller.
        named: whether the caller named one of them.
        kept: places in them where files are not deleted, each with the reason.
        owners: tells which files are other tables'; None where the folders were made for one table.
    """

    folders: tuple[str, ...] = ()
    named: tuple[str, ...] = field(default=())
    kept: Mapping[FilePlace, str] = field(default_factory=dict, compare=False, repr=False)
    owners: FileOwners | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        for folder in self.named:
            # Named by mistake, as by an empty variable in a script, it would allow every file of the machine.
            if not ParsedLocation.of(folder).names and ParsedLocation.of(folder).store == LOCAL:
                raise ConfigurationError(f"{folder!r} is the root of the disk: name a table's folder")

    def and_below(self, locations: Iterable[str]) -> DeletionScope:
        """Return the scope with folders that the caller names.

        Raises:
            ConfigurationError: a location cannot be a table's folder.
        """
        folders = names_of("delete_below", locations)
        check_text("delete_below", folders)
        # As a variable holds it that was set to nothing: it would be a folder of that name in the working directory.
        if not all(map(str.strip, folders)):
            raise ConfigurationError("delete_below names a folder that is blank: write its location, or leave it out")
        return replace(self, named=(*self.named, *folders))

    def keeping(self, reasons: Mapping[str, str]) -> DeletionScope:
        """Return the scope without these files, by location, each with the reason why it is not deleted."""
        return replace(self, kept={**self.kept, **{place_of(location): reason for location, reason in reasons.items()}})

    def contains(self, location: str) -> bool:
        """Whether a folder of a table lies in the scope, or is one of its folders."""
        try:
            parsed = ParsedLocation.of(location)
        except ConfigurationError:
            return False
        return any(parsed == root or parsed.below(root) is not None for root in self._roots())

    @property
    def has_folders(self) -> bool:
        """Whether a file can lie in it at all."""
        return bool(self._roots())

    def reason_against(self, location: str) -> str | None:
        """Return why a file may not be deleted; None where it may."""
        # Without a trusted folder nothing is deleted: metadata that is seen for the first time may name any place.
        roots = self._roots()
        if not roots:
            return _UNPINNED
        # A table's files are files: a folder's name could stand for all that lies below it.
        if location.endswith("/"):
            return "is a folder"

        try:
            parsed = ParsedLocation.of(location)
        except ConfigurationError as error:
            return str(error).removeprefix(f"{location!r} ")

        if (reason := self.kept.get(place_of(location))) is not None:
            return reason

        reasons = [_reason_below(root, parsed) for root in roots]
        if None in reasons:
            return self._reason_of_owners(location)

        nearer = [reason for reason in reasons if reason is not None and reason != _OUTSIDE]

        return nearer[0] if nearer else f"{_OUTSIDE}: {', '.join((*self.folders, *self.named))}"

    def _reason_of_owners(self, location: str) -> str | None:
        if self.owners is None:
            return None
        # Of the folders in metadata the location alone is the table's: whoever may commit sets the others.
        trusted = (*(folder for folder in self.folders[:1] if unusable_location(folder) is None), *self.named)
        return self.owners.reason_against(location, trusted)

    def reason_against_writing_over(self, location: str) -> str | None:
        """Return why a file may not be written over; None where it may."""
        reason = self.reason_against(location)
        if reason is not None:
            return reason

        return _link_in_the_place_of(location)

    def check(self, location: str) -> None:
        """Raise DeletionRefusedError where a file may not be deleted."""
        reason = self.reason_against(location)
        if reason is not None:
            raise DeletionRefusedError(location, reason)

    def _roots(self) -> list[ParsedLocation]:
        roots = []
        for folder in self.folders:
            try:
                root = ParsedLocation.of(folder)
            except ConfigurationError:
                continue
            # Metadata that gives a whole bucket as the table's folder would put every object of it in reach.
            if root.names:
                roots.append(root)

        return [*roots, *map(ParsedLocation.of, self.named)]


NOTHING: Final = DeletionScope()
_OUTSIDE: Final = "lies outside the table's folders"


def names_location(metadata_location: str, location: str) -> bool:
    """Whether the place of a metadata file says where its table lies: the file is in the folder metadata of that location.

    The catalog says where the metadata file is. Any writer of the storage can edit what the file itself says of the location.
    """
    try:
        below = ParsedLocation.of(metadata_location).below(ParsedLocation.of(location))
    except ConfigurationError:
        return False
    return below is not None and len(below) == 2 and below[0] == "metadata"


def store_of(scheme: str) -> str:
    """Return the one scheme that stands for all names of a store: "s3" for "s3a" too, "file" for none."""
    return _SAME_STORE.get(scheme, scheme)


def place_of(location: str) -> FilePlace:
    """Return what is the same for all spellings of one location: its store, its bucket or host, and its path.

        s3a://b/k, s3n://b/k, s3://b//k, s3://b/./k, s3://b/x/../k     one place
        file:/a, file:///a, /a, /link/to/a, ../a                       one place, since links of a local disk are followed
        a%20b, a b                                                     one place

    Stores and their clients disagree about some of these. Where two files differ in their spelling alone, each counts as the other: what
    is needed by one name must not be deleted by another.
    """
    match = _URI.fullmatch(location)
    store = store_of(match["scheme"].lower()) if match else LOCAL
    authority, path = (match["authority"] or "", f"/{match['path'] or ''}") if match else ("", location)
    if store == LOCAL:
        folder, _, name = os.path.abspath(path).rpartition("/")
        path = f"{_real_folder(folder)}/{name}"
    return store, authority, posixpath.normpath(f"/{unquote(path)}").lstrip("/")


def _real_folder(folder: str) -> str:
    # Asked anew each time, 20 µs: a link may lead elsewhere by now, and what was needed by its old target would go.
    try:
        return os.path.realpath(folder)
    except ValueError:
        # No folder has such a name, and no other spelling either.
        return folder


def is_table_file_name(path: str) -> bool:
    """Whether a path below a table's folder is named as the table's own files are: data, deletes, manifests, metadata, statistics."""
    folder, _, name = path.rpartition("/")
    if (checksums := _CHECKSUMS.fullmatch(name)) is not None:
        name = checksums["of"]
    path = f"/{folder}/{name}"
    return _FILE_NAMES.fullmatch(name) is not None or operation_of_journal(path) is not None or is_share_record_name(path)


def is_share_record_name(path: str) -> bool:
    """Whether a path is that of the record of a share, as table/shares.py names them."""
    return re.search(f"/{_SHARE_RECORD_NAMES.pattern}$", path) is not None


def _reason_below(root: ParsedLocation, parsed: ParsedLocation) -> str | None:
    below = parsed.below(root)
    if below is None:
        return _OUTSIDE
    if any(not name for name in below):
        return "has an empty name in its path"
    # An edited location may be the parent of other data: at least the name has to be one that tables give.
    if not is_table_file_name("/".join(below)):
        return "does not have the name of a table's file"

    if parsed.store == LOCAL:
        real_folder = _real_folder_outside(root, parsed)
        if real_folder is not None:
            return f"lies outside the table's folder: a link leads to {real_folder}"

    return None


def is_beyond_a_link(folder: str, location: str) -> bool:
    """Whether a link in a folder of a local disk leads out of it, on the way to a file. Odd spellings are of files that nobody deletes."""
    try:
        root, parsed = ParsedLocation.of(folder), ParsedLocation.of(location)
    except ConfigurationError:
        return False
    return parsed.store == LOCAL and _real_folder_outside(root, parsed) is not None


def is_link(location: str) -> bool:
    """Whether a file of a local disk is a link. Odd spellings are of files that nobody deletes."""
    try:
        parsed = ParsedLocation.of(location)
    except ConfigurationError:
        return False
    return parsed.store == LOCAL and os.path.islink(parsed.local_path)


def _real_folder_outside(root: ParsedLocation, parsed: ParsedLocation) -> str | None:
    """Return the real folder of a local file where that is not below the real one of a folder; None where it is."""
    # Links are followed before the comparison: one inside the table's folder could lead to another table.
    real_root, real_folder = os.path.realpath(root.local_path), os.path.realpath(os.path.dirname(parsed.local_path))
    return None if os.path.commonpath([real_root, real_folder]) == real_root else real_folder


def unusable_location(location: str) -> str | None:
    """Return why the spelling of a location has more than one meaning, or none; None where it has one."""
    if not location:
        return "is empty"
    if _AMBIGUOUS.search(location):
        return "contains a character with a special meaning in locations"
    if not _URI.fullmatch(location) and ":" in location.partition("/")[0]:
        return "is no location"

    decoded, before = location, ""

    # Decoded until nothing changes: %252e%252e is ".." to a store that decodes twice.
    while decoded != before:
        before, decoded = decoded, unquote(decoded)
        segments = decoded.split("/")
        if ".." in segments or "." in segments:
            return "goes up, or nowhere, in its path"

    return None


def refuse_link(location: str) -> None:
    """Raise DeletionRefusedError where a file whose name others can know beforehand would be written through a link."""
    if (reason := _link_in_the_place_of(location)) is not None:
        raise DeletionRefusedError(location, reason)


def _link_in_the_place_of(location: str) -> str | None:
    parsed = ParsedLocation.of(location)
    # A write follows a link, which whoever writes the folder may have put in the file's place: to a backup, or anyone's file.
    if parsed.store == LOCAL and os.path.islink(parsed.local_path):
        return f"is a link, which leads to {os.path.realpath(parsed.local_path)}"
    return None
