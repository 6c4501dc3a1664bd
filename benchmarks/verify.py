"""Verifying a table against the cipher, in one run: how many bytes a second authenticate, and how much memory that takes.

    verify         maintenance.verify of a table of incompressible rows: plan, read, every module of every Parquet file, every block of
                   every other file
    raw            the least that anyone can do who authenticates files: read the same files, and AESGCM.decrypt_into over all of them in
                   messages of 1 MiB, on as many threads
    same modules   as raw, in the modules that the files have: each read by itself and decrypted, their places known beforehand
    cipher alone   the same messages from memory to memory, without reading anything

Files are local and in the page cache. Each side runs in a process of its own in each round, twice: the second run counts, because the first
loads code. How long verify's first run took is printed beside it.
Each figure is the fastest of the rounds: other work on the machine only slows. The ratio is verify's GB/s by raw's, on the clock and by
the processor time of all threads, which says more on a busy machine; the aim is 0.6 or more on the clock. Peak memory is the most that the
process ever held, all of Python, PyIceberg and Arrow included; what it held before it began to verify is printed beside it.
"""

from __future__ import annotations

import argparse
import json
import re
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from tablecrypt import load_catalog
from tablecrypt.kms.local_file import create_key_file
from tablecrypt.maintenance import verify
from tablecrypt.manifests.records import key_metadata_of
from tablecrypt.parquet import FileKeys, inspect
from tablecrypt.parquet.modules import GCM_OVERHEAD

AIM: Final = 0.6
MEMORY_AIM_MB: Final = 300
MESSAGE: Final = 1024 * 1024
FILE_MB: Final = 128
TABLE: Final = "db.rows"
TAG_LENGTH: Final = 16
NONCE: Final = bytes(12)
CIPHER: Final = AESGCM(secrets.token_bytes(16))
ENCRYPTED: Final = CIPHER.encrypt(NONCE, secrets.token_bytes(MESSAGE), b"")
T = TypeVar("T")


def catalog_in(folder: Path) -> Catalog:
    return load_catalog(
        "bench",
        **{
            "type": "tablecrypt",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}/warehouse",
            "encryption.kms-type": "local",
            "kms.local.key-file": str(folder / "keys.json"),
        },
    )


def make_table(folder: Path, size_mb: int) -> int:
    """Write a table of about this size; return the bytes of its files."""
    create_key_file(folder / "keys.json", "bench")
    catalog = catalog_in(folder)
    catalog.create_namespace("db")
    generator = np.random.default_rng(7)
    count = FILE_MB * 1_000_000 // 8 // 4
    schema = pa.schema([(name, pa.float64()) for name in "abcd"])
    table = catalog.create_table(
        TABLE, schema, properties={"encryption.key-id": "bench", "write.parquet.compression-codec": "uncompressed"}
    )
    for _ in range(max(1, size_mb // FILE_MB)):
        table.append(pa.table({name: generator.random(count) for name in "abcd"}))
    return sum(path.stat().st_size for path in (folder / "warehouse").rglob("*") if path.is_file())


def peak_memory() -> int:
    """The most memory that this process ever held. (getrusage would count what its parent held when it began.)"""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def measure_verify(folder: Path, workers: int) -> None:
    """Verify in this process and print seconds, bytes and memory as JSON."""
    table = catalog_in(folder).load_table(TABLE)
    before = peak_memory()
    first = timed(lambda: verified(table, workers))
    seconds = timed(lambda: verified(table, workers))
    print(json.dumps({**seconds, "first": first["processors"], "before": before, "peak": peak_memory()}))


def verified(table: Table, workers: int) -> None:
    if not verify(table, workers=workers).is_good:
        raise SystemExit("the table does not verify")


def measure_raw(folder: Path, workers: int) -> None:
    """Read and decrypt as much in this process, and print seconds as JSON."""
    raw(folder, workers)
    print(json.dumps(timed(lambda: raw(folder, workers))))


def measure_same_modules(folder: Path, workers: int) -> None:
    """Read and decrypt the same modules in this process, and print seconds as JSON."""
    modules = modules_of(catalog_in(folder).load_table(TABLE))
    same_modules(modules, workers)
    print(json.dumps(timed(lambda: same_modules(modules, workers))))


def timed(work: Callable[[], None]) -> dict[str, float]:
    """Seconds on the clock and of all processors."""
    clock, processors = time.perf_counter(), time.process_time()
    work()
    return {"clock": time.perf_counter() - clock, "processors": time.process_time() - processors}


def measured_elsewhere(side: str, folder: Path, workers: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--measure", side, "--folder", str(folder), "--workers", str(workers)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    measured: dict[str, float] = json.loads(run.stdout)
    return measured


def raw(folder: Path, threads: int) -> None:
    """Read all files and decrypt as many bytes, on so many threads."""

    def work(path: Path) -> None:
        buffer, target = bytearray(MESSAGE + TAG_LENGTH), bytearray(MESSAGE)
        with path.open("rb", buffering=0) as file:
            while file.readinto(memoryview(buffer)[:MESSAGE]):
                CIPHER.decrypt_into(NONCE, ENCRYPTED, b"", target)

    on_threads(work, [path for path in (folder / "warehouse").rglob("*") if path.is_file()], threads)


def cipher(length: int, threads: int) -> None:
    """Decrypt `length` bytes, on so many threads."""

    def work(messages: int) -> None:
        target = bytearray(MESSAGE)
        for _ in range(messages):
            CIPHER.decrypt_into(NONCE, ENCRYPTED, b"", target)

    on_threads(work, [length // MESSAGE // threads] * threads, threads)


def modules_of(table: Table) -> dict[Path, list[int]]:
    """Return the lengths of all modules of each data file, those of the footer among them."""
    lengths = {}
    for task in table.scan().plan_files():
        path = Path(task.file.file_path.removeprefix("file://"))
        found = inspect(path, FileKeys.of_table_file(key_metadata_of(task.file)))
        lengths[path] = [module.size for module in found.modules()]
    return lengths


def same_modules(modules: dict[Path, list[int]], threads: int) -> None:
    """Read and decrypt messages of these lengths, on so many threads."""
    longest = max(max(lengths) for lengths in modules.values())
    encrypted = {length: CIPHER.encrypt(NONCE, bytes(length - GCM_OVERHEAD), b"") for length in set().union(*modules.values())}

    def work(path: Path) -> None:
        buffer, target = memoryview(bytearray(longest)), memoryview(bytearray(longest))
        with path.open("rb", buffering=0) as file:
            for length in modules[path]:
                file.readinto(buffer[:length])
                CIPHER.decrypt_into(NONCE, encrypted[length], b"", target[: length - GCM_OVERHEAD])

    on_threads(work, list(modules), threads)


def on_threads(work: Callable[[T], None], items: list[T], threads: int) -> None:
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, items))


def compare(folder: Path, length: int, workers: int, rounds: int) -> bool:
    """Print one number of workers; whether it meets the aims."""
    took: dict[str, list[dict[str, float]]] = {side: [] for side in (*SIDES, "cipher alone")}
    for _ in range(rounds):
        for side in SIDES:
            took[side].append(measured_elsewhere(side, folder, workers))
        took["cipher alone"].append(timed(lambda: cipher(length, workers)))
    ratios: dict[str, float] = {}
    for by in ("clock", "processors"):
        fastest = {side: min(each[by] for each in runs) for side, runs in took.items()}
        ratios[by] = fastest["raw"] / fastest["verify"]
        speeds = "   ".join(f"{side} {length / seconds / 1e9:5.2f}" for side, seconds in fastest.items())
        of_modules = fastest["same modules"] / fastest["verify"]
        print(f"{workers} workers, {by:10}  GB/s: {speeds}   verify by raw {ratios[by]:.2f}, by the same modules {of_modules:.2f}")
    peak, before = (max(run[when] for run in took["verify"]) / 1e6 for when in ("peak", "before"))
    first = min(run["first"] for run in took["verify"])
    print(f"{workers} workers, peak memory {peak:.0f} MB ({before:.0f} MB before); first run {first * 1e3:.0f} ms of processors")
    return ratios["clock"] >= AIM and peak <= MEMORY_AIM_MB


SIDES: Final = {"verify": measure_verify, "raw": measure_raw, "same modules": measure_same_modules}
"""What each side does in a process of its own."""


def main() -> int:
    parser = argparse.ArgumentParser(description="verify against raw AES-GCM")
    parser.add_argument("--size-mb", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--measure", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure is not None:
        SIDES[arguments.measure](arguments.folder, arguments.workers)
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        length = make_table(Path(scratch), arguments.size_mb)
        print(f"{length / 1e9:.2f} GB, AES-128, the fastest of {arguments.rounds} rounds")
        results = [compare(Path(scratch), length, workers, arguments.rounds) for workers in sorted({1, arguments.workers})]
        met = all(results)
    print(f"aim: {AIM} of raw, {MEMORY_AIM_MB} MB: {'met' if met else 'MISSED'}")
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
