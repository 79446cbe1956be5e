"""Held plans within memory limits, predicted and measured: `python tests/interop/plan_offload.py --help`.

Makes GGUF files of random weights in the folder, plans and runs each configuration in turn, and prints predicted over
measured tokens per second with both sides of every part. With --keep, the rows are records that `qbench report` shows.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

SMALL, LARGE = "smollm2-135m", "llama-1.1b"
# (MiB, sequences, tokens) per shape and recipe: limits with most weights on the disk, with half of them, and with few.
LIMITS = {
    (SMALL, "q8_0"): ((460, 1, 64), (500, 16, 64)),
    (SMALL, "q4_k_m"): ((480, 1, 64), (500, 16, 64)),
    (LARGE, "q8_0"): ((640, 1, 64), (900, 1, 256), (1200, 1, 64), (900, 16, 64)),
    (LARGE, "q4_k_m"): ((560, 1, 64), (760, 1, 256), (640, 16, 64), (860, 16, 64)),
}
HELD = tuple((*file, *limit) for file, limits in LIMITS.items() for limit in limits)
PARTS = ("step_s", "compute_s", "wait_s", "disk_s")
MEASURED = ("--goal", "latency", "--measure", "--json")
LIMIT = 0.15  # |predicted / measured - 1|


def qbench(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "qbench", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)}: {done.stderr.strip().splitlines()[-1]}")
    return done.stdout


def model(folder: Path, shape: str, recipe: str) -> str:
    """The file's name, which records keep: a path would name this machine's folders."""
    name = f"{shape}-{recipe}.gguf"
    if not (folder / name).exists():
        qbench(folder, "quantize", f"rand:{shape}", "--recipe", recipe, "-o", name)
    return name


def line(found: dict) -> str:
    both = [f"{found['step'][part] * 1e3:.1f}/{found['measured'][part] * 1e3:.1f}" for part in PARTS]
    read = f"{found['step']['disk_bytes'] / 1e6:.0f}/{found['measured']['disk_bytes'] / 1e6:.0f} MB"
    rates = [found[side]["disk_bytes"] / (found[side]["disk_s"] or 1) / 1e9 for side in ("step", "measured")]
    case, mark = found["case"], "" if abs(found["ratio"] - 1) <= LIMIT else "  miss"
    about = f"{found['model']:<26} {case['memory_bytes'] >> 20:>5} MiB  b{case['batch']:<3} ctx {case['context']:<4}"
    parts = ", ".join(f"{part.removesuffix('_s')} {text} ms" for part, text in zip(PARTS, both, strict=True))
    return f"{about} {found['ratio']:.3f}  {parts}, read {read}, disk {rates[0]:.2f}/{rates[1]:.2f} GB/s{mark}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of the models, on the disk that is measured; 5 GB are free")
    parser.add_argument("--keep", type=Path, help="append the plans as records to this file or folder")
    parser.add_argument("--only", type=int, nargs="*", help="numbers of configurations, from 0")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    keep = ["--keep", str(asked.keep.resolve())] if asked.keep else []
    start, ratios = time.perf_counter(), []
    for number, (shape, recipe, mebibytes, batch, context) in enumerate(HELD):
        if asked.only is not None and number not in asked.only:
            continue
        sizes = ["--memory", f"{mebibytes}MiB", "--batch", str(batch), "--ctx", str(context)]
        name = model(asked.folder, shape, recipe)
        found = json.loads(
            qbench(asked.folder, "plan", name, *sizes, "--goal", "latency", "--measure", "--json", *keep)
        )
        ratios.append(found["ratio"])
        print(line(found), flush=True)
    within, worst = sum(abs(ratio - 1) <= LIMIT for ratio in ratios), max(ratios, key=lambda ratio: abs(ratio - 1))
    print(f"{within} of {len(ratios)} within {LIMIT:.0%}; worst {worst:.3f}; {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
