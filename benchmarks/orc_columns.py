"""ORC column encryption against plain pyarrow.orc on the same rows, and its encryption alone against the bare cipher, in one run.

    python benchmarks/orc_columns.py [--rows 1000000] [--rounds 5] [--codec zstd] [--key-length 16]

Compared, in turn within every round, so that a busy machine slows all of them alike; the median of the rounds counts:

    write      orc.write_table with every column encrypted and nullified, against pyarrow.orc.write_table
    read       orc.read_table with the key, against pyarrow.orc.read_table of the plain file
    encrypt    moving and encrypting the finished streams of a plain file, as writing does: MB/s of file, beside AES-CTR of as many bytes
    unmask     the plain view of an encrypted file read from end to end, as reading does: the same
    authentic  unmask with an integrity manifest, which hashes every byte too
    projected  read of 1 of 50 encrypted columns, against reading all 50

Everything runs on one core: pyarrow's threads are set to one. The aim is 500 MB/s for encrypt and unmask. Their peak memory is what
tracemalloc sees of Python and the cipher, in a run of its own; it is to stay within a few stripes.
"""

from __future__ import annotations

import argparse
import io
import secrets
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc as pyarrow_orc
from _medians import medians, peak_bytes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from tablecrypt import orc
from tablecrypt.orc.column_plan import plan_columns
from tablecrypt.orc.file_encryption import FileAssembly, ShadowColumns
from tablecrypt.orc.integrity_manifest import CheckedSource, FileHasher, IntegrityManifest, IntegrityManifestWriter
from tablecrypt.orc.reader import open_view
from tablecrypt.orc.source import FileSource, OrcSource
from tablecrypt.orc.tail import read_tail

MB: Final = 1_000_000
AIM: Final = 500.0
PIECE: Final = 128 * 1024
NAME: Final = "bench.orc"


class Bench:
    """The rows, as plain and as encrypted ORC, and each way of making and reading them."""

    def __init__(self, rows: int, codec: str, key_length: int) -> None:
        self.codec = codec
        self.keys = orc.LocalKeys({"pii": [secrets.token_bytes(key_length)]})
        self.table = sample(rows)
        self.plain = self.write_plain()
        self.encrypted = self.write_encrypted(self.table)
        self.wide = self.write_encrypted(wide(rows // 10))
        writer = IntegrityManifestWriter(self.keys, "pii")
        digest = FileHasher()
        digest.update(self.encrypted)
        writer.add(NAME, digest.entry())
        self.entry = IntegrityManifest.open(writer.finish(), self.keys).entry(NAME)
        self.cipher = Cipher(algorithms.AES(bytes(key_length)), modes.CTR(bytes(16)))

    def write_plain(self) -> bytes:
        sink = io.BytesIO()
        pyarrow_orc.write_table(self.table, sink, compression=self.codec)
        return sink.getvalue()

    def write_encrypted(self, table: pa.Table) -> bytes:
        sink = io.BytesIO()
        orc.write_table(table, sink, encrypt={"pii": table.column_names}, keys=self.keys, compression=self.codec)
        return sink.getvalue()

    def read_plain(self) -> pa.Table:
        return pyarrow_orc.ORCFile(pa.BufferReader(self.plain)).read()

    def read_encrypted(self) -> pa.Table:
        return orc.read_table(self.encrypted, self.keys)

    def read_wide(self, columns: list[str] | None = None) -> pa.Table:
        return orc.read_table(self.wide, self.keys, columns=columns)

    def encrypt(self) -> None:
        """Encrypt the first half of the columns of the plain file, taking the second half for their true values."""
        source = FileSource(self.plain)
        schema = read_tail(FileSource(self.public_half)).schema
        plan = plan_columns(schema, {"pii": list(schema.root.child_names)}, {})
        assembly = FileAssembly(plan, ShadowColumns(plan), self.keys, lambda data: None)
        assembly.add(source)
        assembly.finish()

    @property
    def public_half(self) -> bytes:
        sink = io.BytesIO()
        half = self.table.num_columns // 2
        pyarrow_orc.write_table(self.table.slice(0, 0).select(range(half)), sink, compression=self.codec)
        return sink.getvalue()

    def unmask(self) -> None:
        self._read_view(FileSource(self.encrypted))

    def unmask_authentic(self) -> None:
        self._read_view(CheckedSource(FileSource(self.encrypted), self.entry))

    def cipher_alone(self) -> None:
        context = self.cipher.encryptor()
        data = memoryview(self.encrypted)
        for start in range(0, len(data), PIECE):
            context.update(data[start : start + PIECE])

    def check(self) -> None:
        """What came back is what went in."""
        if not self.read_encrypted().equals(self.table):
            raise SystemExit("the encrypted file did not give back what it was given")

    def _read_view(self, source: OrcSource) -> None:
        view = open_view(read_tail(source), source, self.keys, None, masked=False)
        while view.read(PIECE):
            pass


def sample(rows: int) -> pa.Table:
    """Four pairs of columns of one type each: the first four stand for masks where the streams of a plain file are encrypted."""
    numbers = pa.array(range(rows), pa.int64())
    scattered = pc.bit_wise_xor(pc.multiply(numbers, 2_654_435_761), pc.shift_right(pc.multiply(numbers, 40_503), 7))
    kinds = {
        "number": scattered,
        "ratio": pc.divide(scattered.cast(pa.float64(), safe=False), 7.0),
        "text": pc.binary_join_element_wise("user", scattered.cast(pa.string()), "-"),
        "small": pc.bit_wise_and(scattered, 1023).cast(pa.int32()),
    }
    return pa.table({f"{name}_{half}": kinds[name] for half in ("a", "b") for name in kinds})


def wide(rows: int) -> pa.Table:
    numbers = pa.array(range(rows), pa.int64())
    return pa.table({f"c{column}": pc.bit_wise_xor(pc.multiply(numbers, 2_654_435_761 + column), column) for column in range(50)})


def main() -> int:
    parser = argparse.ArgumentParser(description="ORC column encryption against plain pyarrow.orc and the bare cipher")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--codec", default="zstd", choices=("uncompressed", "zlib", "snappy", "lz4", "zstd"))
    parser.add_argument("--key-length", type=int, default=16, choices=(16, 32))
    arguments = parser.parse_args()

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    bench = Bench(arguments.rows, arguments.codec, arguments.key_length)
    bench.check()
    seconds = medians(
        {
            "plain write": bench.write_plain,
            "write": lambda: bench.write_encrypted(bench.table),
            "plain read": bench.read_plain,
            "read": bench.read_encrypted,
            "encrypt": bench.encrypt,
            "unmask": bench.unmask,
            "authentic": bench.unmask_authentic,
            "cipher": bench.cipher_alone,
            "all columns": bench.read_wide,
            "projected": lambda: bench.read_wide(["c7"]),
        },
        arguments.rounds,
    )
    size = len(bench.encrypted) / MB
    print(f"{arguments.rows} rows, {size:.0f} MB, {arguments.codec}, AES-{8 * arguments.key_length}, median of {arguments.rounds} rounds\n")
    for name in ("write", "read"):
        plain, own = seconds[f"plain {name}"], seconds[name]
        print(f"{name:<10} {own:7.3f} s   pyarrow.orc {plain:7.3f} s   ratio {own / plain:5.2f}")
    # Bench.encrypt encrypts only the second half of the plain file's columns.
    rates = {"encrypt": size / 2 / seconds["encrypt"], **{name: size / seconds[name] for name in ("unmask", "authentic", "cipher")}}
    for name in ("encrypt", "unmask", "authentic"):
        share = rates[name] / rates["cipher"]
        print(f"{name:<10} {rates[name]:7.0f} MB/s   AES-CTR alone {rates['cipher']:7.0f} MB/s   ratio {share:5.2f}")
    print(f"peak memory: encrypt {peak_bytes(bench.encrypt) / MB:.1f} MB, unmask {peak_bytes(bench.unmask) / MB:.1f} MB")
    times = seconds["all columns"] / seconds["projected"]
    print(f"projected  {seconds['projected']:7.4f} s   all 50 columns {seconds['all columns']:7.4f} s   ratio {times:5.1f}")
    met = min(rates["encrypt"], rates["unmask"]) >= AIM
    print(f"\naim: {AIM:.0f} MB/s: {'met' if met else 'MISSED'}")
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
