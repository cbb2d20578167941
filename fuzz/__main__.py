"""Fuzz one target: `python -m fuzz TARGET CORPUS [what libFuzzer takes]`; `scripts/fuzz` runs them all."""

import sys
from pathlib import Path

import atheris

from fuzz.targets import LEAST, SEEDS, TARGETS


def main() -> None:
    """Run until libFuzzer ends the process; its exit code is not 0 when something was found."""
    name = sys.argv.pop(1)
    target = TARGETS[name]
    if name in SEEDS:
        (Path(sys.argv[1]) / "seed").write_bytes(SEEDS[name])

    def one(data: bytes) -> None:
        if len(data) >= LEAST:
            target(data)

    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
