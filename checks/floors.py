"""import-linter on the packages of the working directory: `python -m checks.floors`.

An editable install has a finder that leads to the tree that was installed, whatever the working directory, and that
also looks for submodules of qbench in the root of that tree. So the finder is left out here.
"""

import sys
from pathlib import Path

from importlinter.cli import lint_imports


def main() -> int:
    """The exit status of import-linter: 1 if a contract is broken."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not _is_editable(finder)]
    sys.path.insert(0, str(Path.cwd()))
    return lint_imports(no_cache=True)


def _is_editable(finder: object) -> bool:
    return type(finder).__module__.startswith("_editable_skbc")


if __name__ == "__main__":
    sys.exit(main())
