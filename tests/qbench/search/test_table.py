"""The table of searches, from the lines that they print."""

import json

from qbench.search.search import SearchResult
from qbench.search.table import read_results, table
from qbench.search.validate import Measured
from qbench.statistics.estimate import Estimate

MIX = Measured("best", 1000, 0.0004, Estimate(0.0005, 1e-5, 0.0004, 0.0006))
LLAMA = Measured("imatrix-q4_k", 990, 0.002, Estimate(0.004), Estimate(0.125, 0.01, 0.1, 0.15, 0.001))
RESULT = SearchResult("ref:llama", "4bpw", "best.gguf", "best.yaml", "best", "lower KLD", (MIX, LLAMA))


def test_a_row_per_fixed_recipe(tmp_path):
    path = tmp_path / "searches.jsonl"
    path.write_text("\n".join(json.dumps(RESULT.to_json()) for _ in range(2)) + "\n")
    results = read_results(path)
    assert results == [RESULT, RESULT]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table(results).splitlines()]
    row = ["ref:llama", "4bpw", "5.00e-04", "0.80", "imatrix-q4_k", "4.00e-03", "0.12 (0.10 to 0.15)"]
    assert cells[2:] == [row, row]


def test_a_search_without_rivals():
    alone = SearchResult("ref:llama", "3bpw", "a.gguf", "a.yaml", "a", "no fixed recipe is as small", (MIX,))
    assert table([alone]).count("|") == 3 * 8
