"""``python -m attack``: see the package."""

from __future__ import annotations

import argparse
import secrets
import sys

from attack.run import KINDS, run, table


def main() -> int:
    parser = argparse.ArgumentParser(prog="attack", description="search for wrong answers of lipcert")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to go on")
    parser.add_argument("--seed", type=int, default=None, help="default: a new one")
    parser.add_argument("--kinds", nargs="*", choices=sorted(KINDS), default=None, help="default: all")
    parser.add_argument("--case", type=int, default=None, help="only this case of each kind")
    given = parser.parse_args()
    seed = secrets.randbelow(2**31) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    logs = run(given.kinds or list(KINDS), seed, given.seconds, given.case)
    print(table(logs))
    print(f"seed {seed}")
    return int(any(log.violations for log in logs))


if __name__ == "__main__":
    sys.exit(main())
