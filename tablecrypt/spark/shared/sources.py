"""The Java sources that tablecrypt brings to Spark, and the services of their jars.

jar                 sources                              services
tablecrypt-spark    spark/shared/java, spark/sql/java       what every session of Spark SQL gets
tablecrypt-orc      two of orc/java                      ORC's key providers that never turn a failure into masks
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Final

PACKAGE: Final = "tablecrypt.jvm"
DIGEST_CLASS: Final = "SourcesDigest"
"""Says in a JVM which sources its classes were compiled from."""
KEY_PROVIDER_FACTORY: Final = "tablecrypt.orc.CheckedKeysFactory"

_SPARK_FOLDERS: Final = ("tablecrypt.spark.shared", "tablecrypt.spark.sql")
"""Python packages with a folder `java`."""
_ORC_CLASSES: Final = ("CheckedKeys", "CheckedKeysFactory")


@dataclass(frozen=True)
class JavaSources:
    """What a jar is compiled from.

    Args:
        name: the jar's, without .jar.
        texts: what the files are called, without .java, and their text.
        services: for each interface that java.util.ServiceLoader looks for, the class that implements it.
    """

    name: str
    texts: Mapping[str, str]
    services: Mapping[str, str]

    def digest(self) -> str:
        """Return the SHA-256 of all texts and services, in hexadecimal."""
        digest = hashlib.sha256()
        for kind, entries in (("java", self.texts), ("service", self.services)):
            for name in sorted(entries):
                content = entries[name].encode()
                # With its length, so that text cannot move from one file to the next under the same digest.
                digest.update(f"{kind} {name} {len(content)}\n".encode() + content)

        return digest.hexdigest()


def spark_sources() -> JavaSources:
    """Return the sources of the reader, the writer and the catalog, with a class that holds the digest of the others."""
    texts = {}
    for package in _SPARK_FOLDERS:
        for path in (resources.files(package) / "java").iterdir():
            if path.name.endswith(".java"):
                texts[path.name.removesuffix(".java")] = path.read_text(encoding="utf-8")

    services = {
        "org.apache.spark.sql.SparkSessionExtensionsProvider": f"{PACKAGE}.SqlExtensions",
        "org.apache.spark.sql.sources.DataSourceRegister": f"{PACKAGE}.EncryptedSource",
    }
    return JavaSources("tablecrypt-spark", dict(sorted(texts.items())) | {DIGEST_CLASS: _digest_class(spark_digest(texts))}, services)


def spark_digest(texts: Mapping[str, str]) -> str:
    """Return what the class DIGEST_CLASS says of the other sources."""
    return JavaSources("", {name: text for name, text in texts.items() if name != DIGEST_CLASS}, {}).digest()


def _digest_class(digest: str) -> str:
    return f'package {PACKAGE};\n\npublic class {DIGEST_CLASS} {{\n  public static final String VALUE = "{digest}";\n}}\n'


def orc_sources() -> JavaSources:
    """Return the sources of ORC's key providers."""
    folder = resources.files("tablecrypt.orc") / "java"
    texts = {name: (folder / f"{name}.java").read_text(encoding="utf-8") for name in _ORC_CLASSES}
    return JavaSources("tablecrypt-orc", texts, {"org.apache.orc.impl.KeyProvider$Factory": KEY_PROVIDER_FACTORY})


def all_sources() -> tuple[JavaSources, ...]:
    """Return the sources of each jar that the wheel carries."""
    return spark_sources(), orc_sources()
