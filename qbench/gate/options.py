"""Options of a gate."""

from dataclasses import dataclass
from pathlib import Path

from qbench.measure.host.commit import ROOT
from quant.errors import InputError

GATES = ("quality", "memory", "speed")


@dataclass(frozen=True, slots=True)
class GateOptions:
    """The two sides of a gate, and its limits.

    baseline      a file or folder of records, or a commit
    report        gates that are shown and never red
    skip          gates that are left out
    see           slowdown that is to be found: launches in turn with a base commit go on until each check would
    budget_s      of the launches: no launch begins after it
    any_machine   take records of another machine for gates that depend little on the machine
    folder        of this tree's artifacts and records
    ranks         on so many, the suite's models must have the logits of one rank; 1: this is not checked
    """

    suite: Path
    baseline: str
    report: frozenset[str] = frozenset()
    skip: frozenset[str] = frozenset()
    see: float = 0.05
    budget_s: float = 300.0
    any_machine: bool = False
    folder: Path = Path("runs/gate")
    ranks: int = 1

    def __post_init__(self) -> None:
        if self.skip >= set(GATES):
            raise InputError(f"{', '.join(GATES)} are all skipped: nothing would be checked")


def suite_file(name: str) -> Path:
    """The file of that name; for a name without a folder else suites/NAME.yaml, here or next to this code.

    raises   InputError if no file is found, with the paths that were tried
    """
    tried = [Path(name)]
    if name == Path(name).name:
        file = f"{name.removesuffix('.yaml')}.yaml"
        tried += [Path("suites") / file, *([] if Path.cwd() == ROOT else [ROOT / "suites" / file])]
        tried += [folder / file for folder in (ROOT / "qbench" / "suites",) if folder.is_dir()]  # an installed package
    for path in tried:
        if path.is_file():
            return path
    raise InputError(f"no suite {name!r}: tried {', '.join(map(str, tried))}")
