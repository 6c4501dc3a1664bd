"""Parquet modules through our code against the cipher alone, and a projected read against decrypting the file, in one run.

    python benchmarks/parquet_columns.py [--size-mib 512] [--columns 50] [--rounds 5] [--page-kib 1024]

Compared, in turn within every round; the median of the rounds counts. One core each, and processor time: on the clock of a busy machine the
one column, which takes a few milliseconds, was read 8 to 36 times as fast as the whole file from one run to the next.

    cipher       AESGCM.encrypt_into / decrypt_into of each page of the file, from and into memory that is there already
    encrypt      a plaintext file in memory into memory; every module is parsed, encrypted and written
    decrypt      the same back; every module is authenticated
    reencrypt    under another key
    verify       every module authenticated, nothing written
    read by all  decrypt the file into new memory, then let pyarrow read one column of it: what there is without projection
    read 1       the same column of the encrypted file by read_table; the file has column keys, so that our modules do it

Then a small file, 10,000 rows in 5 columns, read whole: with one key, which pyarrow's core decrypts, and with a column key, which our
modules do, against pyarrow reading the plaintext.

Aims: 800 MB/s for encrypt and decrypt at the default page size, and a column read 20 times as fast as by decrypting the file.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from _medians import medians
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tablecrypt.parquet import FileKeys, decrypt, encrypt, inspect, read_table, reencrypt, verify

MIB: Final = 1024 * 1024
THROUGHPUT_AIM: Final = 800e6
PROJECTION_AIM: Final = 20
KEY: Final = b"k" * 16
NONCE: Final = bytes(12)


def plaintext_file(size: int, columns: int, page_size: int) -> pa.Buffer:
    """Random numbers, which no codec makes smaller, in row groups of at most a million rows."""
    random = np.random.default_rng(1)
    rows = size // (8 * columns)
    table = pa.table({f"column_{number}": random.random(rows) for number in range(columns)})
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        use_dictionary=False,
        compression="none",
        data_page_size=page_size,
        write_batch_size=max(1, min(1024, page_size // 8)),
        max_rows_per_page=10**9,
    )
    return sink.getvalue()


class Bench:
    """The plaintext file, the encrypted one, and each way of getting from one to the other."""

    def __init__(self, size: int, columns: int, page_size: int, algorithm: str) -> None:
        self.plaintext = plaintext_file(size, columns, page_size)
        self.size = self.plaintext.size
        self.keys = FileKeys(KEY, {"column_0": b"c" * 16}, algorithm=algorithm)
        self.other_keys = FileKeys(b"o" * 16, algorithm=algorithm)
        self.out = bytearray(self.size + self.size // 16 + MIB)
        self.encrypted = bytes(self.out[: encrypt(self.plaintext, self._sink(), self.keys)])
        bodies = [module.size - 32 for module in inspect(self.encrypted, self.keys).modules() if module.type == "data page"]
        self.pages = len(bodies)
        self.page_length = max(1, self.size // self.pages)
        self.cipher = AESGCM(KEY)
        self.page = bytearray(self.page_length)
        self.encrypted_page = bytearray(self.page_length + 16)
        self.cipher.encrypt_into(NONCE, self.page, b"aad", self.encrypted_page)

    def _sink(self) -> pa.FixedSizeBufferWriter:
        return pa.FixedSizeBufferWriter(pa.py_buffer(self.out))

    def cipher_encrypts(self) -> None:
        for _ in range(self.pages):
            self.cipher.encrypt_into(NONCE, self.page, b"aad", self.encrypted_page)

    def cipher_decrypts(self) -> None:
        for _ in range(self.pages):
            self.cipher.decrypt_into(NONCE, self.encrypted_page, b"aad", self.page)

    def encrypt(self) -> None:
        encrypt(self.plaintext, self._sink(), self.keys)

    def decrypt(self) -> None:
        decrypt(self.encrypted, self._sink(), self.keys)

    def reencrypt(self) -> None:
        reencrypt(self.encrypted, self._sink(), self.keys, self.other_keys)

    def verify(self) -> None:
        verify(self.encrypted, self.keys)

    def read_one_column(self) -> pa.Table:
        return read_table(self.encrypted, self.keys, ["column_0"], use_threads=False)

    def decrypt_and_read(self) -> pa.Table:
        sink = pa.BufferOutputStream()
        decrypt(self.encrypted, sink, self.keys)
        return pq.read_table(pa.BufferReader(sink.getvalue()), columns=["column_0"], use_threads=False)

    def check(self) -> None:
        """What came back is what went in."""
        length = decrypt(self.encrypted, self._sink(), self.keys)
        expected = pq.read_table(pa.BufferReader(self.plaintext), columns=["column_0"])
        if self.out[:length] != self.plaintext.to_pybytes() or self.read_one_column() != expected:
            raise SystemExit("the file did not come back as it was")


def report(bench: Bench, rounds: int) -> bool:
    """Print one algorithm's figures; whether they meet the aims."""
    ways: dict[str, Callable[[], object]] = {
        "cipher encrypts": bench.cipher_encrypts,
        "encrypt": bench.encrypt,
        "cipher decrypts": bench.cipher_decrypts,
        "decrypt": bench.decrypt,
        "reencrypt": bench.reencrypt,
        "verify": bench.verify,
        "read by all": bench.decrypt_and_read,
        "read 1": bench.read_one_column,
    }
    seconds = medians(ways, rounds, time.process_time)
    bench.check()
    peers = {"encrypt": "cipher encrypts", "decrypt": "cipher decrypts", "verify": "cipher decrypts"}
    for name, taken in seconds.items():
        if name.startswith("read"):
            continue
        line = f"  {name:<13} {bench.size / taken / 1e6:7.0f} MB/s"
        if name in peers:
            line += f"   {seconds[peers[name]] / taken:5.2f} of the cipher alone"
        print(line)
    projection = seconds["read by all"] / seconds["read 1"]
    print(f"  {'read by all':<13} {seconds['read by all'] * 1e3:7.1f} ms")
    print(f"  {'read 1':<13} {seconds['read 1'] * 1e3:7.1f} ms     {projection:5.1f} times as fast as by decrypting the file")
    fast_enough = all(bench.size / seconds[name] >= THROUGHPUT_AIM for name in ("encrypt", "decrypt"))
    return fast_enough and projection >= PROJECTION_AIM


def report_small_file(rounds: int) -> None:
    """Print what reading a small file takes beside reading its plaintext."""
    rows = np.arange(10_000)
    table = pa.table(
        {"id": rows, "x": rows / 3, "y": rows / 7, "name": [f"name {row % 1000}" for row in rows], "text": [f"row {row}" for row in rows]}
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    plaintext = sink.getvalue()

    def reading(keys: FileKeys) -> Callable[[], object]:
        encrypted = pa.BufferOutputStream()
        encrypt(plaintext, encrypted, keys)
        data = encrypted.getvalue()
        return lambda: read_table(data, keys, use_threads=False)

    seconds = medians(
        {
            "plaintext": lambda: pq.read_table(pa.BufferReader(plaintext), use_threads=False),
            "one key": reading(FileKeys(KEY)),
            "column key": reading(FileKeys(KEY, {"id": b"c" * 16})),
        },
        20 * rounds,
        time.process_time,
    )
    print(f"small file: {plaintext.size / 1e3:.0f} kB, {table.num_rows} rows in {table.num_columns} columns")
    for name, taken in seconds.items():
        print(f"  {name:<13} {taken * 1e3:7.2f} ms     {taken / seconds['plaintext']:5.2f} of the plaintext")


def main() -> int:
    parser = argparse.ArgumentParser(description="Parquet modules through tablecrypt against the cipher alone")
    parser.add_argument("--size-mib", type=int, default=512)
    parser.add_argument("--columns", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--page-kib", type=int, default=1024)
    arguments = parser.parse_args()

    met = True
    for algorithm in ("AES_GCM_V1", "AES_GCM_CTR_V1"):
        bench = Bench(arguments.size_mib * MIB, arguments.columns, arguments.page_kib * 1024, algorithm)
        print(f"{algorithm}: {bench.size / 1e6:.0f} MB, {arguments.columns} columns, {bench.pages} pages of {bench.page_length} bytes")
        met = report(bench, arguments.rounds) and met
    report_small_file(arguments.rounds)
    print(f"\naim: {THROUGHPUT_AIM / 1e6:.0f} MB/s, {PROJECTION_AIM} times: {'met' if met else 'MISSED'}")
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
