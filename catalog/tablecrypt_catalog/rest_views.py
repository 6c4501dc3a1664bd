"""Views of a REST catalog: what PyIceberg lacks for them, and that none takes the name of a table that this client has pinned.

    change     POST …/views/{view}     {"requirements": [assert-view-uuid], "updates": [add-schema, add-view-version, set-properties, …]}
    rename     POST …/views/rename     {"source": …, "destination": …}

A view is SQL that the server keeps in the clear, and nothing authenticates it: whoever can write to the catalog decides what it shows. The
tables in it are opened as any others, so the rows of these cannot be forged.

Iceberg REST catalog specification: replaceView, renameView, ViewUpdate. Iceberg view spec.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError
from pyiceberg.schema import Schema
from pyiceberg.typedef import Identifier
from pyiceberg.view import View
from pyiceberg.view.metadata import ViewVersion

from tablecrypt.errors import ConfigurationError, FormatError
from tablecrypt_catalog._pyiceberg.rest import RestCatalogAdapter

if TYPE_CHECKING:
    from tablecrypt_catalog.pins.client import ClientPins

_LAST_ADDED: Final = -1


class RestViews(RestCatalogAdapter):
    """Views of a catalog with encrypted tables."""

    if TYPE_CHECKING:

        @property
        def client_pins(self) -> ClientPins: ...

    def load_view(self, identifier: str | Identifier) -> View:
        """Load a view.

        Raises:
            NoSuchViewError: no view has that name.
            KeyIdChangedError: this client's pins know an encrypted table of that name.
            FormatError: the answer is no view.
            ConfigurationError: the server redirects to another one.
        """
        pin_check = self.client_pins.begin_check(identifier)
        try:
            view: View = super().load_view(identifier)
            # Called for its error: the answer may lack the schema that its current version names.
            view.schema()
        except ConfigurationError:
            # A ValueError too, of this client and not of the answer's text.
            raise
        # All but the first are of PyIceberg's models, which take some parts for what they are not.
        except (ValidationError, AttributeError, LookupError, RuntimeError, StopIteration, TypeError, ValueError):
            # Pydantic's own text, which a chained error would print, quotes the answer.
            name = ".".join(self.identifier_to_tuple(identifier))
            raise FormatError(f"{name}: the catalog's answer cannot be read as the metadata of a view") from None

        # A view in the place of a pinned table would show rows of its writer's invention.
        pin_check.refuse_plaintext("a view")
        return view

    def replace_view(self, view: View, schema: Schema, version: ViewVersion, properties: Mapping[str, str]) -> None:
        """Give a view another query; properties are added to those that it has.

        Raises:
            NoSuchViewError: it is gone.
            CommitFailedException: it is another view by now.
            CommitStateUnknownException: the server failed: the change may have landed.
        """
        sent = version.model_copy(update={"schema_id": _LAST_ADDED, "version_id": max(each.version_id for each in view.versions) + 1})
        self._change(
            view,
            {"action": "add-schema", "schema": schema.model_dump(mode="json"), "last-column-id": schema.highest_field_id},
            {"action": "add-view-version", "view-version": json.loads(sent.model_dump_json())},
            {"action": "set-current-view-version", "view-version-id": _LAST_ADDED},
            *([{"action": "set-properties", "updates": dict(properties)}] if properties else []),
        )

    def alter_view(self, view: View, updates: Mapping[str, str], removals: Collection[str]) -> None:
        """Set and remove properties of a view. Raises as `replace_view`."""
        changes: list[dict[str, Any]] = []
        if updates:
            changes.append({"action": "set-properties", "updates": dict(updates)})
        if removals:
            changes.append({"action": "remove-properties", "removals": sorted(removals)})
        self._change(view, *changes)

    def rename_view(self, old: Identifier, new: Identifier) -> None:
        """Rename a view.

        Raises:
            NoSuchViewError, ViewAlreadyExistsError: no view has the old name, or one has the new name.
        """
        names = {"source": old, "destination": new}
        self.request_view_rename(json.dumps({each: {"namespace": name[:-1], "name": name[-1]} for each, name in names.items()}))

    def _change(self, view: View, *updates: dict[str, Any]) -> None:
        *namespace, name = view.name()
        request = {
            "identifier": {"namespace": namespace, "name": name},
            "requirements": [{"type": "assert-view-uuid", "uuid": view.metadata.view_uuid}],
            "updates": updates,
        }
        self.request_view_commit(view.name(), json.dumps(request))
