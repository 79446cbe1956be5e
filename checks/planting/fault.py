"""A fault: one small wrong change of one file, as checks/faults/*.yaml lists them."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

COMPILED = (".cpp", ".inl", ".h")


class UnusableFault(Exception):
    """A fault that says nothing about the tests: its text is not there, or the project does not load with it."""


@dataclass(frozen=True, slots=True)
class Fault:
    """`old` occurs exactly once in `file` and becomes `new`.

    kind   its name among programmers: wrong constant, off by one, missing fsync, ...
    tests  files or folders of tests that should see it first; empty: the file or folder that mirrors `file`
    """

    id: str
    file: str
    kind: str
    old: str
    new: str
    tests: tuple[str, ...] = ()

    @property
    def is_compiled(self) -> bool:
        return self.file.endswith(COMPILED)

    def check(self, root: Path) -> None:
        """raises UnusableFault if the fault cannot be planted in the tree at `root`"""
        self._planted(root)
        for name in self.tests:
            if not (root / name).exists():
                raise UnusableFault(f"{self.id}: {name} does not exist")

    @contextmanager
    def planted(self, root: Path) -> Iterator[None]:
        """The tree at `root` has the fault inside the block and is as before after it."""
        path, before = root / self.file, (root / self.file).read_text("utf-8")
        path.write_text(self._planted(root), "utf-8")
        try:
            yield
        finally:
            path.write_text(before, "utf-8")

    def _planted(self, root: Path) -> str:
        path = root / self.file
        text = path.read_text("utf-8") if path.is_file() else ""
        if (count := text.count(self.old)) != 1:
            raise UnusableFault(f"{self.id}: {self.file} holds {self.old!r} {count} times, expected once")
        planted = text.replace(self.old, self.new)
        if path.suffix == ".py":
            try:
                compile(planted, self.file, "exec")
            except SyntaxError as error:
                raise UnusableFault(f"{self.id}: {self.file} is no Python with the fault: {error}") from error
        return planted

    def nearest_tests(self, root: Path) -> list[str]:
        """Its `tests` if they are given, else the mirrored file of tests if it exists, else the folder `mirror`."""
        file = Path("tests", self.file)
        mirrored = file.with_name(f"test_{file.stem}.py")
        return list(self.tests) or [mirrored.as_posix() if (root / mirrored).is_file() else self.mirror(root)]

    def mirror(self, root: Path) -> str:
        """The folder of tests that mirrors the file's; of folders that exist, the nearest."""
        folder = (root / "tests" / self.file).parent
        while not folder.is_dir():
            folder = folder.parent
        return folder.relative_to(root).as_posix()


def load_faults(folder: Path) -> list[Fault]:
    """Every fault of the YAML files in `folder`. raises UnusableFault if two share an id"""
    rows = [row for path in sorted(folder.glob("*.yaml")) for row in yaml.safe_load(path.read_text("utf-8"))]
    faults = [Fault(**{**row, "tests": tuple(row.get("tests", ()))}) for row in rows]
    twice = [name for name, count in Counter(fault.id for fault in faults).items() if count > 1]
    if twice:
        raise UnusableFault(f"{', '.join(twice)}: two faults have this id")
    return faults
