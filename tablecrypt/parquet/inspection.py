"""What a Parquet file consists of: a tree of its modules with their types, places, sizes and the names of their keys.

    FileInspection ── row_groups ── RowGroupInspection ── chunks ── ChunkInspection ── modules ── ModuleInspection
          └─ footer modules

Nothing but what the tree needs is opened: the footer, the metadata of columns, headers of pages in the clear. Lengths of sealed modules stand
in the clear before them, so pages are listed without their key. Nothing here says that a module authenticates: tablecrypt.parquet.verify does.

Without keys, of an encrypted footer only its place is known; a plaintext footer is shown unauthenticated, as it is to anyone.

Raises TamperedFileError or FormatError for a file whose modules cannot be told apart.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from tablecrypt.errors import KeyNotFoundError, KmsAccessDeniedError
from tablecrypt.parquet.footer import TAIL_LENGTH, StoredFooter, read_footer
from tablecrypt.parquet.keys import FileKeys
from tablecrypt.parquet.layout import Chunk, FileCiphers, FileLayout, Span
from tablecrypt.parquet.modules import ModuleType
from tablecrypt.parquet.storage import Source, open_source

FOOTER_KEY: str = "footer"
