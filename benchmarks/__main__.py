"""`python -m benchmarks [NAME …]`: every benchmark, or those named, each in its own process.

A process of its own, because what one leaves warm (imports, threads, caches) would flatter the
next. Ends with 1 if any of them failed.
"""

import subprocess
import sys
from pathlib import Path


def main() -> int:
    """Run the named benchmarks, or all."""
    known = sorted(
        path.stem for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith("_")
    )
    chosen = sys.argv[1:] or known
    if unknown := [name for name in chosen if name not in known]:
        sys.stderr.write(f"No benchmark {', '.join(unknown)}; there are: {', '.join(known)}\n")
        return 2
    failed: list[str] = []
    for name in chosen:
        print(f"\n# {name}", flush=True)
        if subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False).returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
