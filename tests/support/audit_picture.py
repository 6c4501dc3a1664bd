"""The picture of an audit's page in the documentation, from a real audit: `python -m tests.support.audit_picture`.

It makes a catalog with files in moto's S3 and keys in its KMS, and audits it. Then it neglects it (a forgotten export, a table without a
key, a KEK that nears its end), audits it again as of 100 days later, and photographs the page of the second audit with Chromium.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from tablecrypt.maintenance import audit, changes_since, rotate_kek
from tablecrypt.maintenance.report import html_page
from tests.support.aws import CREDENTIALS, REGION, AwsServer
from tests.support.browser import browser_problem, started_browser

PICTURE: Final = Path(__file__).parents[2] / "docs" / "images" / "audit.png"
WIDTH: Final = 1200
HEIGHT: Final = 1080
_SCHEMA: Final = Schema(NestedField(1, "id", LongType()), NestedField(2, "region", StringType()), NestedField(3, "text", StringType()))
_BY_REGION: Final = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))
_DAY_MS: Final = 24 * 3600 * 1000


def main() -> None:
    """Write the picture."""
    if problem := browser_problem():
        sys.exit(problem)
    os.environ.update(CREDENTIALS, AWS_DEFAULT_REGION=REGION, AWS_EC2_METADATA_DISABLED="true")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "audit.html"
        page.write_text(real_page(Path(folder)), encoding="utf-8")
        PICTURE.parent.mkdir(exist_ok=True)
        with started_browser() as browser, browser.open(page, width=WIDTH) as shown:
            shown.screenshot(path=PICTURE, clip={"x": 0, "y": 0, "width": WIDTH, "height": HEIGHT}, full_page=True)


def real_page(folder: Path) -> str:
    """Return the page of the second of two audits of a catalog that is made in this folder and in moto."""
    aws = AwsServer()
    try:
        catalog, now = _catalog(folder, aws), dt.datetime.now(dt.UTC)
        tables = {
            "sales.orders": _table(catalog, "sales.orders", _rows(4000)),
            "sales.customers": _table(catalog, "sales.customers", _rows(2500)),
            "finance.ledger": _table(catalog, "finance.ledger", _rows(6000), **{"encryption.kek-lifespan-ms": str(105 * _DAY_MS)}),
            "hr.salaries": _table(catalog, "hr.salaries", _rows(900), key_id="alias/people"),
        }
        _forget_export(aws, tables["finance.ledger"], "ledger-2025.parquet")
        earlier = json.dumps(audit(catalog, now=now + dt.timedelta(days=70)).to_json())
        aws.s3.delete_object(Bucket="lakehouse", Key="finance.ledger/data/ledger-2025.parquet")
        rotate_kek(catalog.load_table("sales.orders"))
        _forget_export(aws, tables["sales.orders"], "export-for-ads.parquet")
        _table(catalog, "web.sessions", _rows(3000), key_id=None)
        found = audit(catalog, now=now + dt.timedelta(days=100))
        return html_page(found, changes_since(found, earlier))
    finally:
        aws.stop()


def _catalog(folder: Path, aws: AwsServer) -> Catalog:
    aws.bucket("lakehouse")
    catalog = load_catalog(
        "lakehouse",
        **{
            "py-catalog-impl": "tablecrypt_catalog.EncryptedSqlCatalog",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": "s3://lakehouse",
            **aws.kms_properties,
            **aws.s3_properties,
        },
    )
    for namespace in ("finance", "hr", "sales", "web"):
        catalog.create_namespace(namespace)
    return catalog


def _table(catalog: Catalog, name: str, rows: pa.Table, key_id: str | None = "alias/orders", **properties: str) -> Table:
    key = {} if key_id is None else {"encryption.key-id": key_id}
    table = catalog.create_table(name, _SCHEMA, f"s3://lakehouse/{name}", _BY_REGION, properties={**key, **properties})
    half = rows.num_rows // 2
    table.append(rows[:half])
    table.append(rows[half:])
    return table


def _rows(number: int) -> pa.Table:
    regions = ("east", "north", "south", "west")
    return pa.table(
        {
            "id": pa.array(range(number), pa.int64()),
            "region": [regions[each % 4] for each in range(number)],
            "text": [f"{each * 2654435761 % 2**32:08x}" * 8 for each in range(number)],
        }
    )


def _forget_export(aws: AwsServer, table: Table, name: str) -> None:
    """Leave a plaintext file in the table's folder, as somebody does who exports rows and goes home."""
    sink = pa.BufferOutputStream()
    pq.write_table(table.scan().to_arrow(), sink)
    aws.s3.put_object(
        Bucket="lakehouse", Key=f"{table.location().removeprefix('s3://lakehouse/')}/data/{name}", Body=sink.getvalue().to_pybytes()
    )


if __name__ == "__main__":
    main()
