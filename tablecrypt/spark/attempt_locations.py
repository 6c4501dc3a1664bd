"""Names of the data files that Spark's tasks write: no two attempts ever write the same file.

    {partition}-{attempt}-{uuid}-{number}.parquet           number: of the file within the attempt; uuid: fresh for each attempt

Where the files lie stays the affair of the table's own location provider, which gets the new names. An executor's copy of the table
metadata names this class in `write.py-location-provider.impl`; the table itself never does.
"""

from __future__ import annotations

from typing import Final

from pyiceberg.partitioning import PartitionKey
from pyiceberg.table import TableProperties
from pyiceberg.table.locations import LocationProvider, load_location_provider
from pyiceberg.typedef import Properties

from tablecrypt.table.metadata import EncryptedTableMetadata

_IMPL: Final = TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL
_OWN_IMPL: Final = "tablecrypt.spark.own-location-provider"
_ATTEMPT: Final = "tablecrypt.spark.attempt"


class AttemptLocations(LocationProvider):
    """Gives PyIceberg's file names the partition and attempt, then asks the table's own provider where they go."""

    def __init__(self, table_location: str, table_properties: Properties) -> None:
        super().__init__(table_location, table_properties)
        own = {name: value for name, value in table_properties.items() if name not in (_IMPL, _OWN_IMPL, _ATTEMPT)}
        if _OWN_IMPL in table_properties:
            own[_IMPL] = table_properties[_OWN_IMPL]
        self._own = load_location_provider(table_location, own)
        self._attempt = table_properties[_ATTEMPT]

    def new_data_location(self, data_file_name: str, partition_key: PartitionKey | None = None) -> str:
        """Return the location of a file that PyIceberg calls 00000-{number}-{uuid}.parquet."""
        stem, _, extension = data_file_name.rpartition(".")
        _, number, unique = stem.split("-", 2)
        return self._own.new_data_location(f"{self._attempt}-{unique}-{int(number):05d}.{extension}", partition_key)


def with_attempt_names(metadata: EncryptedTableMetadata, partition: int, attempt: int) -> EncryptedTableMetadata:
    """Return metadata whose data files are named for one attempt at one partition. For writing files only, never to be committed."""
    properties = {**metadata.properties, _IMPL: f"{__name__}.{AttemptLocations.__name__}", _ATTEMPT: f"{partition:05d}-{attempt}"}
    if _IMPL in metadata.properties:
        properties[_OWN_IMPL] = metadata.properties[_IMPL]
    return metadata.model_copy(update={"properties": properties})
