"""The client of REST catalogs: requests, headers, authentication, vended credentials and error codes stay PyIceberg's own.

RestCatalog: _session, _check_endpoint, _split_identifier_for_path, _create_table, _response_to_table, _response_to_staged_table
_RETRY_ARGS                  the same second attempt after a token has expired
_handle_non_200_response     the same exceptions for the same answers
"""

from __future__ import annotations

from typing import Any

from pyiceberg.catalog.rest import _RETRY_ARGS as RETRY_ARGS
from pyiceberg.catalog.rest import (
    AUTHORIZATION_HEADER,
    BEARER_PREFIX,
    SNAPSHOT_LOADING_MODE,
    Capability,
    Endpoints,
    RestCatalog,
    TableResponse,
)
from pyiceberg.catalog.rest.response import _handle_non_200_response as raise_for_answer
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, NoSuchTableError
from pyiceberg.table import StagedTable, Table
from pyiceberg.typedef import UTF8, Identifier
from requests import HTTPError, RequestException, Response
from tenacity import retry

COMMIT_ERRORS: dict[int, type[Exception]] = {
    409: CommitFailedException,
    500: CommitStateUnknownException,
    502: CommitStateUnknownException,
    504: CommitStateUnknownException,
}


class RestCatalogSeam(RestCatalog):
    """PyIceberg's RestCatalog, whose steps can be taken one by one: what the server said is handed out as it said it."""

    @retry(**RETRY_ARGS)
    def request_table(self, identifier: str | Identifier) -> str:
        """Ask for a table; return the answer's JSON.

        Raises:
            NoSuchTableError: there is none of that name.
        """
        self._check_endpoint(Capability.V1_LOAD_TABLE)
        mode = self.properties.get(SNAPSHOT_LOADING_MODE)
        if mode not in {None, "all", "refs"}:
            raise ValueError(f"Invalid {SNAPSHOT_LOADING_MODE}: {mode}")
        response = self._session.get(self._table_url(identifier), params={"snapshots": mode} if mode else {})
        return _text(response, {404: NoSuchTableError})

    @retry(**RETRY_ARGS)
    def request_commit(self, table: Table, request: str) -> str:
        """Send a commit; return the answer's JSON.

        Raises:
            CommitFailedException: the server refused the commit, which has changed nothing.
            CommitStateUnknownException: the server failed, or no answer came: the commit may have landed.
        """
        self._check_endpoint(Capability.V1_UPDATE_TABLE)
        headers = {AUTHORIZATION_HEADER: f"{BEARER_PREFIX} {table.config['token']}"} if table.config.get("token") else {}
        try:
            response = self._session.post(self._table_url(table.name()), data=request.encode(UTF8), headers=headers)
        except RequestException as error:
            raise CommitStateUnknownException(
                f"{'.'.join(table.name())}: no answer came from the catalog, so the commit may have landed: {error}"
            ) from error
        return _text(response, COMMIT_ERRORS)

    @retry(**RETRY_ARGS)
    def request_staged_table(self, identifier: str | Identifier, *args: Any) -> StagedTable:
        """Return a new table as the server stages it, not committed. The arguments are those of `create_table`."""
        response = self._create_table(identifier, *args, stage_create=True)
        return self._response_to_staged_table(self.identifier_to_tuple(identifier), response)

    def table_of(self, identifier: str | Identifier, response: TableResponse) -> Table:
        """Return the table of a server's answer, with the FileIO that the answer's configuration and credentials ask for."""
        return self._response_to_table(self.identifier_to_tuple(identifier), response)

    def _table_url(self, identifier: str | Identifier) -> str:
        return self.url(Endpoints.load_table, prefixed=True, **self._split_identifier_for_path(identifier))


def _text(response: Response, errors: dict[int, type[Exception]]) -> str:
    try:
        response.raise_for_status()
    except HTTPError as error:
        raise_for_answer(error, errors)
    return response.text
