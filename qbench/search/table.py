"""A table of searches from the JSON lines that they printed.

qbench quantize ref:llama --target 4bpw -o best.gguf --json >> searches.jsonl
python -m qbench.search.table searches.jsonl
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from qbench.markdown_grid import markdown_grid
from qbench.search.search import SearchResult
from qbench.search.validate import Measured
from qbench.text_file import read_text_file

HEADINGS = ("model", "target", "KLD of the mix", "predicted / measured", "fixed recipe", "its KLD", "mix / recipe")
NUMERIC = (False, False, True, True, False, True, True)


def read_results(path: Path) -> list[SearchResult]:
    """raises InputError for a file that cannot be read, and ValueError for lines that no search printed"""
    lines = read_text_file(path, "searches").splitlines()
    return [SearchResult.from_json(json.loads(line)) for line in lines if line.strip()]


def table(results: Sequence[SearchResult]) -> str:
    """One row per search and fixed recipe, in the order of the results."""
    return markdown_grid([HEADINGS, *(row for result in results for row in _rows(result))], NUMERIC)


def _rows(result: SearchResult) -> list[tuple[str, ...]]:
    mix = next(each for each in result.candidates if each.ratio is None)
    head = (result.model, result.target, f"{mix.kld.value:.2e}", f"{mix.predicted / mix.kld.value:.2f}")
    rivals = [each for each in result.candidates if each.ratio is not None]
    if not rivals:
        return [(*head, "", "", "")]
    return [(*head, each.name, f"{each.kld.value:.2e}", _ratio(each)) for each in rivals]


def _ratio(rival: Measured) -> str:
    ratio = rival.ratio
    assert ratio is not None
    ends = "" if ratio.interval is None else f" ({ratio.low:.2f} to {ratio.high:.2f})"
    return f"{ratio.value:.2f}{ends}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Print a table of searches.")
    parser.add_argument("files", nargs="+", type=Path, help="JSON lines of `qbench quantize --target --json`")
    files = parser.parse_args().files
    print(table([result for path in files for result in read_results(path)]))


if __name__ == "__main__":
    main()
