"""The fastest configuration of each row, from measurements on a GPU, kept as data: configs/<GPU>.json."""

import json
import math
from collections import defaultdict
from pathlib import Path

from gpu_kernels.chosen import config_path
from gpu_kernels.proof.contenders import OURS

COMMAND = "python -m gpu_kernels.measure --choose"


def choices(rows: list[dict]) -> dict[str, dict[str, str]]:
    """op -> row -> the configuration whose times, over the best of each problem in that row, have the least product.

    rows  a run's records
    """
    times = defaultdict(dict)  # (op, row, label) -> configuration -> us
    for row in rows:
        name = row["impl"].removeprefix(f"{OURS} ")
        if row["row"] and name != row["impl"] and "us" in row:
            times[row["op"], row["row"], row["label"]][name] = row["us"]
    slowdowns = defaultdict(lambda: defaultdict(list))  # (op, row) -> configuration -> one for each problem
    for (op, row, _), us in times.items():
        for name, took in us.items():
            slowdowns[op, row][name].append(math.log(took / min(us.values())))
    found = defaultdict(dict)
    for (op, row), each in slowdowns.items():
        complete = {name: sum(taken) for name, taken in each.items() if len(taken) == max(map(len, each.values()))}
        found[op][row] = min(complete, key=complete.__getitem__)
    return dict(found)


def write_choices(folder: Path, found: dict[str, dict[str, str]], about: dict) -> Path:
    """Rows that this run has not measured stay as they were.

    about  record.provenance of the run
    """
    path = folder / config_path(about["gpu"]).name
    before = json.loads(path.read_text(encoding="utf-8"))["chosen"] if path.exists() else {}
    merged = {op: before.get(op, {}) | found.get(op, {}) for op in sorted(before | found)}
    kept = {"made_with": COMMAND} | {key: about[key] for key in ("gpu", "commit", "time", "versions")}
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(kept | {"chosen": merged}, indent=2) + "\n", encoding="utf-8")
    return path
