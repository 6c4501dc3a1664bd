"""The bytes with which files of each format begin, those of Parquet and Puffin end with them too: written here and nowhere else."""

from __future__ import annotations

from typing import Final

AGS1: Final = b"AGS1"
AVRO: Final = b"Obj\x01"
ENCRYPTED_PARQUET: Final = b"PARE"
GZIP: Final = b"\x1f\x8b"
ORC: Final = b"ORC"
PARQUET: Final = b"PAR1"
PUFFIN: Final = b"PFA1"
