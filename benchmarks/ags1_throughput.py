"""AGS1 through our streams against the cipher alone, on one buffer, in one run.

    python benchmarks/ags1_throughput.py [--size-mib 256] [--rounds 5] [--key-length 16]

Compared, in turn within every round, so that a busy machine slows all of them alike; the median of the rounds counts:

    one call     AESGCM.encrypt / decrypt of the whole buffer: what an application without AGS1 would call. Allocates its result.
    in place     AESGCM.encrypt_into / decrypt_into of the whole buffer into memory that is there already. No copy, no allocation at all.
    AGS1         Ags1OutputStream.write of the buffer to a pyarrow FixedSizeBufferWriter; Ags1InputStream.readinto the buffer from a
                 pyarrow BufferReader; and Ags1InputStream.read, which allocates its result. The store is memory, and copies what it
                 is given, as any store does.

The ratio to "one call" is the aim (0.8 or more). The ratio to "in place" shows in addition what the store's copy costs, which the cipher
alone does not make. Peak extra memory is tracemalloc's peak (it sees every bytes and bytearray that Python, the cipher and pyarrow make) in
a run of its own, without the buffer, the store's memory and, for `read`, the result.
"""

from __future__ import annotations

import argparse
import secrets
from typing import Final

import pyarrow as pa
from _medians import medians, peak_bytes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tablecrypt.crypto import ags1
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.files.ags1_streams import Ags1InputStream, Ags1OutputStream

MIB: Final = 1024 * 1024
AIM: Final = 0.8
MEMORY_AIM_MIB: Final = 8
NONCE: Final = bytes(12)


class Bench:
    """The buffer, the memory of the store, and each way of getting from one to the other."""

    def __init__(self, size: int, key_length: int) -> None:
        self.size = size
        self.key_metadata = StandardKeyMetadata.generate(key_length, secrets.token_bytes)
        self.cipher = AESGCM(self.key_metadata.encryption_key.reveal())
        self.buffer = bytearray(secrets.token_bytes(size))
        self.expected = bytes(self.buffer)
        self.encrypted = bytearray(size + 16)
        self.store = bytearray(ags1.file_length(size))

    def encrypt_in_one_call(self) -> None:
        self.cipher.encrypt(NONCE, self.buffer, b"")

    def encrypt_in_place(self) -> None:
        self.cipher.encrypt_into(NONCE, self.buffer, b"", self.encrypted)

    def ags1_write(self) -> None:
        with Ags1OutputStream(pa.FixedSizeBufferWriter(pa.py_buffer(self.store)), self.key_metadata) as stream:
            stream.write(self.buffer)

    def decrypt_in_one_call(self) -> None:
        self.cipher.decrypt(NONCE, self.encrypted, b"")

    def decrypt_in_place(self) -> None:
        self.cipher.decrypt_into(NONCE, self.encrypted, b"", self.buffer)

    def ags1_readinto(self) -> None:
        with self.opened() as stream:
            stream.readinto(self.buffer)

    def ags1_read(self) -> bytes:
        with self.opened() as stream:
            return stream.read()

    def opened(self) -> Ags1InputStream:
        length = len(self.store)
        return Ags1InputStream(pa.BufferReader(pa.py_buffer(self.store)), self.key_metadata.with_file_length(length), "memory", length)

    def check(self) -> None:
        """What came back is what went in."""
        if self.buffer != self.expected or self.ags1_read() != self.expected:
            raise SystemExit("AGS1 did not give back what it was given")


def report(title: str, seconds: dict[str, float], peaks: dict[str, int], size: int) -> bool:
    """Print one direction; whether it meets the aims."""
    met = True
    print(title)
    for name, taken in seconds.items():
        line = f"  {name:<14} {size / taken / 1e9:7.2f} GB/s"
        if name in peaks:
            ratio, peak_mib = seconds["one call"] / taken, peaks[name] / MIB
            met = met and ratio >= AIM and peak_mib <= MEMORY_AIM_MIB
            line += f"   {ratio:5.2f} of one call   {seconds['in place'] / taken:5.2f} of in place   peak extra memory {peak_mib:5.2f} MiB"
        print(line)
    return met


def main() -> int:
    parser = argparse.ArgumentParser(description="AGS1 through tablecrypt's streams against raw AESGCM on the same buffer")
    parser.add_argument("--size-mib", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--key-length", type=int, default=16, choices=(16, 24, 32))
    arguments = parser.parse_args()

    bench = Bench(arguments.size_mib * MIB, arguments.key_length)
    writing = {"one call": bench.encrypt_in_one_call, "in place": bench.encrypt_in_place, "AGS1 write": bench.ags1_write}
    reading = {
        "one call": bench.decrypt_in_one_call,
        "in place": bench.decrypt_in_place,
        "AGS1 readinto": bench.ags1_readinto,
        "AGS1 read": bench.ags1_read,
    }
    write_seconds = medians(writing, arguments.rounds)
    read_seconds = medians(reading, arguments.rounds)
    bench.check()
    write_peaks = {"AGS1 write": peak_bytes(bench.ags1_write)}
    read_peaks = {"AGS1 readinto": peak_bytes(bench.ags1_readinto), "AGS1 read": peak_bytes(bench.ags1_read) - bench.size}

    print(f"{arguments.size_mib} MiB, AES-{arguments.key_length * 8}, median of {arguments.rounds} rounds\n")
    met = report("write", write_seconds, write_peaks, bench.size)
    met = report("read", read_seconds, read_peaks, bench.size) and met
    print(f"\naim: {AIM} of one call, {MEMORY_AIM_MIB} MiB: {'met' if met else 'MISSED'}")
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
