"""iceberg-rust reads key metadata, AGS1 streams, and tables as far as their manifests. Runs in this repository: needs Cargo."""

from __future__ import annotations

import os
from pathlib import Path

from tests.services.programs import cargo_program, problem_without

FOLDER = Path(__file__).parent / "iceberg_rust"


def main() -> None:
    """Build the program the first time, and become it: it speaks the protocol by itself."""
    if problem := problem_without("iceberg-rust", "cargo"):
        raise SystemExit(problem)
    program = cargo_program(FOLDER)
    os.execv(program, (program,))


if __name__ == "__main__":
    main()
