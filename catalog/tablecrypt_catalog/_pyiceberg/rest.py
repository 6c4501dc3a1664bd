"""The client of REST catalogs: requests, headers, authentication, vended credentials and error codes stay PyIceberg's own.

RestCatalog: list_tables, list_views, list_namespaces, load_namespace_properties, register_table
RestCatalog: update_namespace_properties, create_view, load_credentials, plan_scan, _fetch_scan_tasks
AuthManagerAdapter           the header of each request, with an error of its own
RestCatalog: _session, _create_session, _config_headers, _check_endpoint, _supported_endpoints, _split_identifier_for_path, _create_table
RestCatalog: _fetch_config, _response_to_table, _response_to_staged_table, _resolve_storage_credentials, _auth_manager
                             where a server's configuration comes in: what it may say is decided by tablecrypt/properties.py
_RETRY_ARGS                  the same second attempt after a token has expired
_handle_non_200_response     the same exceptions for the same answers
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urljoin, urlsplit

from pydantic import Field, ValidationError
from pyiceberg.catalog import TOKEN, URI, PropertiesUpdateSummary
from pyiceberg.catalog.rest import (
    _RETRY_ARGS,
    AUTH,
    AUTHORIZATION_HEADER,
    BEARER_PREFIX,
    SNAPSHOT_LOADING_MODE,
    SSL,
    Capability,
    Endpoints,
    IdentifierKind,
    RestCatalog,
    TableResponse,
)
from pyiceberg.catalog.rest.auth import AUTH_MANAGER, AuthManager, AuthManagerAdapter
from pyiceberg.catalog.rest.response import _handle_non_200_response as raise_for_answer
from pyiceberg.catalog.rest.scan_planning import PlanTableScanRequest, ScanTasks
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchTableError,
    NoSuchViewError,
    ViewAlreadyExistsError,
)
from pyiceberg.exceptions import ValidationError as InvalidMetadataError
from pyiceberg.io import S3_SIGNER, FileIO
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, StagedTable, Table
from pyiceberg.table.sorting import SortOrder
from pyiceberg.typedef import EMPTY_DICT, UTF8, Identifier, Properties
from pyiceberg.view import View
from requests import HTTPError, PreparedRequest, RequestException, Response, Session
from tenacity import retry

from tablecrypt._parsed_json import problem_of
from tablecrypt._per_process import PerProcess
from tablecrypt.bounded_answers import OF_CATALOGS, bound_answers
from tablecrypt.errors import ConfigurationError, FormatError, ReadRestrictionError, TablecryptError
from tablecrypt.files.stores import file_io_for
from tablecrypt.printable import printable
from tablecrypt.properties import KMS_VENDED, check_header_value, check_table_properties, taken_from_server
from tablecrypt.table.restrictions.read_restrictions import parse_restrictions
from tablecrypt.table.table_files import name_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["COMMIT_ERRORS", "RestCatalogAdapter", "RestrictedCreationError", "TableAnswer"]

F = TypeVar("F", bound=Callable[..., Any])

_DELEGATION: Final = "X-Iceberg-Access-Delegation"
_KMS_DELEGATION: Final = "kms-vended-credentials"
COMMIT_ERRORS: dict[int, type[Exception]] = {
    409: CommitFailedException,
    500: CommitStateUnknownException,
    502: CommitStateUnknownException,
    503: CommitStateUnknownException,
    504: CommitStateUnknownException,
}
_NEW_TABLE: Final[ContextVar[str]] = ContextVar("what a server answered to the creation or registration of a table", default="")
_MOST_PAGES: Final = 1_000
"""Of one listing: servers put a hundred names or more on a page, unless a client asks for fewer."""
_MOST_PARTS: Final = 100_000
"""Of one plan of a scan."""
_MOST_LEVELS: Final = 100
"""Of namespaces in namespaces."""


def twice_if_unauthorized(request: F) -> F:
    """Send a request once more, with a fresh token, where the server says that the token has expired."""
    return retry(**_RETRY_ARGS)(request)  # type: ignore[call-overload, no-any-return]


@dataclass(frozen=True)
class _Listing:
    """What is listed, and the addresses of the pages that were read of it."""

    what: str
    pages: set[str] = field(default_factory=set)


@dataclass
class _Plan:
    """The parts of a plan that were read, and how many parts these named."""

    asked: set[str] = field(default_factory=set)
    named: int = 0


_LISTING: Final[ContextVar[_Listing | None]] = ContextVar("the listing that is being read", default=None)
_PLAN: Final[ContextVar[_Plan | None]] = ContextVar("the plan of a scan that is being read", default=None)


class TableAnswer(TableResponse):
    """What a server answers of a table, with what PyIceberg's own model leaves out."""

    read_restrictions: Any = Field(alias="read-restrictions", default=None)
    kms_credentials: Any = Field(alias="key-management-credentials", default=None, repr=False)


class RestrictedCreationError(ReadRestrictionError):
    """A server answered a creation with restrictions of what may be read.

    Attributes:
        answer: the server's.
    """

    def __init__(self, reason: str, answer: TableAnswer) -> None:
        super().__init__(reason)
        self.answer = answer


class RedirectedElsewhereError(ConfigurationError, RequestException):
    """A server redirected a request to another one. To a commit it is as if no answer came, so that nothing of it is deleted."""


class RestCatalogAdapter(RestCatalog):
    """PyIceberg's RestCatalog, whose steps can be taken one by one: what the server said is handed out as it said it.

    Of what a server says about the configuration, only that is taken which `taken_from_server` admits, and nothing of a table's properties.

    Connections and tokens stay in their process: a forked child and a pickled copy make their own when they first need them.
    """

    def __init__(self, name: str, **properties: str) -> None:
        self._client_properties = dict(properties)
        self._sessions = PerProcess(self._create_session)
        super().__init__(name, **properties)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_sessions", "_auth_manager")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._auth_manager, self._sessions = None, PerProcess(self._create_session)

    @property
    def _session(self) -> Session:
        return self._sessions.get()

    @_session.setter
    def _session(self, session: Session) -> None:
        self._sessions.hold(session)

    @property
    def client_properties(self) -> Properties:
        """What this client said about the catalog, before a server was asked."""
        return self._client_properties

    @twice_if_unauthorized
    def request_table(self, identifier: str | Identifier, mode: str | None = None) -> str:
        """Ask for a table; return the answer's JSON.

        Args:
            identifier: the table's name.
            mode: which snapshots the answer has; None for what the property says.

        Raises:
            NoSuchTableError: no table has that name.
        """
        self._check_endpoint(Capability.V1_LOAD_TABLE)
        mode = mode or self.properties.get(SNAPSHOT_LOADING_MODE)
        if mode not in {None, "all", "refs"}:
            raise ValueError(f"Invalid {SNAPSHOT_LOADING_MODE}: {mode}")
        # The text, since PyIceberg's models would drop the keys, and pins compare what the server said.
        response = self._session.get(self._table_url(identifier), params={"snapshots": mode} if mode else {})
        return _text(response, {404: NoSuchTableError})

    @twice_if_unauthorized
    def request_commit(self, table: Table, request: str) -> str:
        """Send a commit; return the answer's JSON.

        Raises:
            CommitFailedException: the server refused the commit, which has changed nothing.
            CommitStateUnknownException: the server failed, or no answer came: the commit may have landed.
        """
        self._check_endpoint(Capability.V1_UPDATE_TABLE)
        headers = {AUTHORIZATION_HEADER: f"{BEARER_PREFIX} {table.config[TOKEN]}"} if table.config.get(TOKEN) else {}
        try:
            response = self._session.post(self._table_url(table.name()), data=request.encode(UTF8), headers=headers)
        # A commit that was sent may have landed, whatever became of the connection.
        except RequestException as error:
            raise CommitStateUnknownException(
                f"{name_of(table)}: no answer came from the catalog, so the commit may have landed: {error}"
            ) from error

        return _text(response, COMMIT_ERRORS)

    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        """Return the names of a namespace's tables. FormatError where the answer is no list of names in it."""
        with self._reading("a list of tables"):
            return self._in_namespace(namespace, super().list_tables(namespace))

    def list_views(self, namespace: str | Identifier) -> list[Identifier]:
        """Return the names of a namespace's views. FormatError where the answer is no list of names in it."""
        with self._reading("a list of views"):
            return self._in_namespace(namespace, super().list_views(namespace))

    def list_namespaces(self, namespace: str | Identifier = ()) -> list[Identifier]:
        """Return the namespaces in another, or at the top. FormatError where the answer is no list of names in it, or they lie too deep."""
        around = self.identifier_to_tuple(namespace)
        # A walk through namespaces that each have another one in them would not end.
        if len(around) == _MOST_LEVELS:
            raise FormatError(f"catalog {self.name}: the server has namespaces in namespaces, more than {_MOST_LEVELS} levels deep")
        with self._reading("a list of namespaces"):
            # Some servers list the namespace itself among those in it.
            return self._in_namespace(around, [each for each in super().list_namespaces(around) if each != around])

    def _in_namespace(self, namespace: str | Identifier, found: list[Identifier]) -> list[Identifier]:
        """Return names, all of which are in a namespace. Who drops what is in one would else drop what is not, and forget its pins."""
        around = _folded(self.identifier_to_tuple(namespace))
        if any(len(each) <= len(around) or _folded(each[: len(around)]) != around for each in found):
            raise FormatError(f"catalog {self.name}: the server's list of what is in a namespace has names that are not in it")
        return found

    def load_namespace_properties(self, namespace: str | Identifier) -> Properties:
        """Return the properties of a namespace. FormatError where the answer has none."""
        with self._reading("the properties of a namespace"):
            found: Properties = super().load_namespace_properties(namespace)
            return found

    def update_namespace_properties(
        self, namespace: str | Identifier, removals: set[str] | None = None, updates: Properties = EMPTY_DICT
    ) -> PropertiesUpdateSummary:
        """Change the properties of a namespace. FormatError where the answer does not say what was changed."""
        with self._reading("changed properties"):
            changed: PropertiesUpdateSummary = super().update_namespace_properties(namespace, removals, updates)
            return changed

    def create_view(self, *args: Any, **kwargs: Any) -> View:
        """Create a view. FormatError where the answer is none."""
        with self._reading("the metadata of a view"):
            made: View = super().create_view(*args, **kwargs)
            return made

    def plan_scan(self, identifier: str | Identifier, request: PlanTableScanRequest) -> list[FileScanTask]:
        """Let the server plan a scan. FormatError where its answers are no plan, or one without an end."""
        plan = _PLAN.set(_Plan())
        try:
            # Its parts come from one address: they are no pages of a listing.
            with self._reading("the plan of a scan", is_listing=False):
                planned: list[FileScanTask] = super().plan_scan(identifier, request)
                return planned
        finally:
            _PLAN.reset(plan)

    def _fetch_scan_tasks(self, identifier: str | Identifier, plan_task: str) -> ScanTasks:
        plan = _PLAN.get()
        # PyIceberg asks for every part that another one names.
        if plan is not None and plan_task in plan.asked:
            raise FormatError(f"catalog {self.name}: the server gives the plan of a scan without an end: a part of it comes twice")

        fetched: ScanTasks = super()._fetch_scan_tasks(identifier, plan_task)
        if plan is not None:
            plan.asked.add(plan_task)
            plan.named += len(fetched.plan_tasks)
            if max(plan.named, len(plan.asked)) > _MOST_PARTS:
                raise FormatError(f"catalog {self.name}: the server gives the plan of a scan in more than {_MOST_PARTS} parts")

        return fetched

    @contextmanager
    def _reading(self, what: str, is_listing: bool = True) -> Iterator[None]:
        listing = _Listing(what) if is_listing else None
        reading = _LISTING.set(listing)
        try:
            yield
        except (ValidationError, AttributeError, LookupError, TypeError) as error:
            # Of PyIceberg's models, which take some parts for what they are not; without an answer, of the caller's arguments.
            if not isinstance(error, ValidationError) and (listing is None or not listing.pages):
                raise
            # Pydantic's own text, which a chained error would print, quotes the answer.
            raise FormatError(f"catalog {self.name}: the server's answer cannot be read as {what}: {type(error).__name__}") from None
        finally:
            _LISTING.reset(reading)

    @property
    def has_views(self) -> bool:
        """Whether the server says that it keeps views."""
        return Capability.V1_LOAD_VIEW in self._supported_endpoints

    @twice_if_unauthorized
    def request_view_commit(self, identifier: str | Identifier, request: str) -> str:
        """Send changes of a view, which PyIceberg cannot; return the answer's JSON.

        Raises:
            NoSuchViewError: no view has that name.
            CommitFailedException: the server refused the changes and made none of them.
            CommitStateUnknownException: the server failed: the changes may have landed.
        """
        path = self._split_identifier_for_path(identifier, IdentifierKind.VIEW)
        response = self._session.post(self.url(Endpoints.load_view, prefixed=True, **path), data=request.encode(UTF8))
        return _text(response, {**COMMIT_ERRORS, 404: NoSuchViewError})

    @twice_if_unauthorized
    def request_view_rename(self, request: str) -> None:
        """Send the renaming of a view, which PyIceberg cannot.

        Raises:
            NoSuchViewError, ViewAlreadyExistsError: no view has that name, or one has the new name.
        """
        response = self._session.post(self.url("views/rename"), data=request.encode(UTF8))
        _text(response, {404: NoSuchViewError, 409: ViewAlreadyExistsError})

    @twice_if_unauthorized
    def request_new_table(
        self,
        identifier: str | Identifier,
        schema: Schema | pa.Schema,
        location: str | None,
        partition_spec: PartitionSpec,
        sort_order: SortOrder,
        properties: Properties,
        is_staged: bool = False,
    ) -> TableAnswer:
        """Have the server create a table, or only stage it; return the answer.

        Raises:
            RestrictedCreationError: the server restricts what may be read of it. A table that is not only staged has been made.
            FormatError: the answer is not a table.
        """
        return self._create_table(identifier, schema, location, partition_spec, sort_order, properties, stage_create=is_staged)

    def table_of(self, identifier: str | Identifier, response: TableResponse) -> Table:
        """Return the table of a server's answer, with the FileIO that the answer's configuration and credentials ask for."""
        return self._response_to_table(self.identifier_to_tuple(identifier), response)

    def staged_table_of(self, identifier: str | Identifier, response: TableResponse) -> StagedTable:
        """Return the table of a server's answer that is not committed, with a FileIO as `table_of`."""
        return self._response_to_staged_table(self.identifier_to_tuple(identifier), response)

    def _config_headers(self, session: Session) -> None:
        super()._config_headers(session)
        # Here and not once the session is made: the first token is asked for while it is.
        bound_answers(session, OF_CATALOGS)
        session.hooks["response"].append(partial(_refuse_elsewhere, session))

    def _create_session(self) -> Session:
        try:
            session = super()._create_session()
        # PyIceberg takes both for mappings with the right names.
        except (AttributeError, TypeError) as error:
            raise ConfigurationError(f"catalog {self.name}: {AUTH} or {SSL} cannot be used: {printable(error)}") from None

        if self._auth_manager is not None:
            session.auth = _NamedAuth(self.name, self._auth_manager)
        session.hooks["response"].extend((_keep_new_table, partial(_refuse_endless, self.name)))
        if KMS_VENDED.is_true(self.properties):
            session.headers[_DELEGATION] = ",".join((str(session.headers[_DELEGATION]), _KMS_DELEGATION))
        return session

    def _create_table(self, *args: Any, **kwargs: Any) -> TableAnswer:
        """PyIceberg's own, with the whole answer. Raises RestrictedCreationError where its reader is restricted."""
        with self._reading_table("a creation"):
            super()._create_table(*args, **kwargs)
            answer = TableAnswer.model_validate_json(_NEW_TABLE.get())

        _refuse_restricted(answer)

        return answer

    def register_table(self, identifier: str | Identifier, metadata_location: str, overwrite: bool = False) -> Table:
        """Register a table by its metadata file. FormatError where the answer is no table."""
        with self._reading_table("a registration"):
            registered: Table = super().register_table(identifier, metadata_location, overwrite)
            return registered

    @contextmanager
    def _reading_table(self, asked: str) -> Iterator[None]:
        answer = f"catalog {self.name}: the server's answer to {asked} is no table"
        try:
            yield
        except ValidationError as error:
            # Pydantic's own text, which a chained error would print, quotes the answer: it may hold vended credentials.
            raise FormatError(f"{answer}: {problem_of(error)}") from None
        except (AttributeError, LookupError, TypeError, InvalidMetadataError) as error:
            # Of PyIceberg's models, which take some parts for what they are not; without an answer, of the caller's arguments.
            if not _NEW_TABLE.get():
                raise
            raise FormatError(f"{answer}: {type(error).__name__}") from None
        finally:
            _NEW_TABLE.set("")

    def file_io_of(self, response: TableResponse) -> FileIO:
        """Return the FileIO of an answer: the client's properties, and the credentials that the server vends for the client's endpoints.

        Raises:
            ConfigurationError: the table's properties or the answer's configuration name code, an endpoint or a receiver of credentials.
        """
        check_table_properties(response.metadata.location, response.metadata.properties, self.client_properties)
        # Each set of credentials is looked at, though one is used: the path of the metadata file, which the server chooses, picks it.
        vended = [each.config for each in response.storage_credentials]
        for sent in (response.config, *vended):
            self._taken(sent)
        chosen = self._resolve_storage_credentials(response.storage_credentials, response.metadata_location)
        properties = {**self.properties, **self._taken(response.config), **self._taken(chosen)}
        if S3_SIGNER in properties:
            properties[AUTH_MANAGER] = _AuthOfCatalog(self)
        return file_io_for(properties, response.metadata_location or "")

    def load_credentials(self, identifier: str | Identifier, location: str) -> Properties:
        """Return the credentials that the server vends for a location.

        Raises:
            ConfigurationError: it names something else with them.
            FormatError: the answer is none.
        """
        with self._reading("credentials"):
            vended = super().load_credentials(identifier, location)
        return dict(self._taken(vended))

    def _taken(self, sent: Properties) -> dict[str, str]:
        server = f"the server of catalog {self.name}"
        # Before a commit sends it: the HTTP library's error would show it, and pass for an answer that was lost.
        check_header_value(f"{TOKEN}, which {server} sent,", sent.get(TOKEN))
        # A table's token is for the server that sent it: it is no part of a FileIO.
        return taken_from_server(server, {name: value for name, value in sent.items() if name != TOKEN}, self.client_properties)

    def _fetch_config(self) -> None:
        try:
            super()._fetch_config()
        except (AttributeError, TypeError, ValidationError) as error:
            raise FormatError(f"catalog {self.name}: the server's configuration cannot be read: {type(error).__name__}") from None
        except TablecryptError:
            raise
        except ValueError as error:
            raise ConfigurationError(
                f"catalog {self.name}: what the server and this client say of the catalog cannot be read: {printable(error)}"
            ) from None

        # PyIceberg has merged the server's answer into the client's properties: what is not the client's came from there.
        said = {name: value for name, value in self.properties.items() if not _is_same(self.client_properties, name, value)}
        taken = taken_from_server(f"the server of catalog {self.name}", said, self.client_properties)
        self.properties = {**self.client_properties, **taken}
        # Requests carry the client's token: a server must not have them sent elsewhere.
        self.uri = self.client_properties[URI]

    def _response_to_table(self, identifier_tuple: tuple[str, ...], table_response: TableResponse) -> Table:
        return Table(
            identifier=identifier_tuple,
            metadata=table_response.metadata,
            metadata_location=table_response.metadata_location or "",
            io=self.file_io_of(table_response),
            catalog=self,
            config=table_response.config,
        )

    def _response_to_staged_table(self, identifier_tuple: tuple[str, ...], table_response: TableResponse) -> StagedTable:
        return StagedTable(
            identifier=identifier_tuple,
            metadata=table_response.metadata,
            metadata_location=table_response.metadata_location,  # type: ignore[arg-type]
            io=self.file_io_of(table_response),
            catalog=self,
        )

    def _table_url(self, identifier: str | Identifier) -> str:
        return self.url(Endpoints.load_table, prefixed=True, **self._split_identifier_for_path(identifier))


class _AuthOfCatalog(AuthManager):
    """The catalog's own, in whichever process it is asked."""

    def __init__(self, catalog: RestCatalogAdapter) -> None:
        self._catalog = catalog

    def auth_header(self) -> str | None:
        """Return what goes into the header of a request."""
        auth = self._catalog._session.auth
        return auth.auth_manager.auth_header() if isinstance(auth, AuthManagerAdapter) else None


class _NamedAuth(AuthManagerAdapter):
    """PyIceberg's, which says whose token it is where the token's server answers with none."""

    def __init__(self, catalog: str, manager: AuthManager) -> None:
        super().__init__(manager)
        self._catalog = catalog

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        """Put the header into a request."""
        try:
            signed: PreparedRequest = super().__call__(request)
        except TablecryptError:
            raise
        except (LookupError, TypeError, ValueError, RecursionError) as error:
            # The texts of others may quote the answer, which a token may be in.
            what = printable(error) if type(error) is ValueError else type(error).__name__
            raise ConfigurationError(f"catalog {self._catalog}: {AUTH} gives no token: {what}") from None

        return signed


def _refuse_elsewhere(session: Session, response: Response, **_: Any) -> None:
    """Refuse a redirect to another host: a request's headers and body hold this client's credentials, of which only one is taken out."""
    named = session.get_redirect_target(response)
    if named is None:
        return
    asked = response.request.url or ""
    target = urljoin(asked, named)
    if session.should_strip_auth(asked, target):  # type: ignore[no-untyped-call]
        raise RedirectedElsewhereError(
            f"{printable(_origin(asked))} redirects to {printable(_origin(target))}, which would get this client's "
            f"credentials: if that is right, name it as the catalog's {URI}"
        )


def _folded(name: Identifier) -> Identifier:
    # Servers on case-insensitive catalogs answer with names in small letters.
    return tuple(part.casefold() for part in name)


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _refuse_endless(catalog: str, response: Response, **_: Any) -> None:
    """Refuse a listing without an end, which PyIceberg would read for ever: one that leads back to a page of its own, or has too many."""
    listing = _LISTING.get()
    if listing is None:
        return
    # After a token that has expired, a listing begins anew, once.
    if not response.ok:
        listing.pages.clear()
        return

    page = response.request.url or ""
    answer = f"catalog {catalog}: the server gives {listing.what}"
    if page in listing.pages:
        raise FormatError(f"{answer} without an end: a page names itself or an earlier one as the next")
    if len(listing.pages) == _MOST_PAGES:
        raise FormatError(f"{answer} on more than {_MOST_PAGES} pages: set a greater rest-page-size if there are so many names")
    listing.pages.add(page)


def _keep_new_table(response: Response, **_: Any) -> None:
    """Keep the answer that brings a new table: PyIceberg parses it itself, and leaves out what its model does not know."""
    if response.request.method == "POST" and (response.request.url or "").partition("?")[0].endswith(("/tables", "/register")):
        _NEW_TABLE.set(response.text)


def _refuse_restricted(answer: TableAnswer) -> None:
    try:
        if parse_restrictions(answer.read_restrictions) is None:
            return
        reason = (
            "the catalog's server restricts what you may read of the new table: have it created by a user whom the server does not restrict"
        )
    except ReadRestrictionError as unknown:
        reason = str(unknown)

    raise RestrictedCreationError(reason, answer)


def _is_same(client: Properties, name: str, value: object) -> bool:
    return name in client and client[name] == value


def _text(response: Response, errors: dict[int, type[Exception]]) -> str:
    try:
        response.raise_for_status()
    except HTTPError as error:
        raise_for_answer(error, errors)
    return response.text
