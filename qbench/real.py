"""`real:NAME`: real models and the texts for them. They never come with this project; `make real` fetches them.

All files are in one folder: FOLDER, or the folder that QBENCH_REAL names.
"""

import hashlib
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from qbench.words.written import nearest
from quant.errors import InputError

PREFIX = "real:"
FOLDER = "runs/real"
VARIABLE = "QBENCH_REAL"


@dataclass(frozen=True, slots=True)
class RealFile:
    """One file of the folder.

    file       its path in the folder
    sha256     of the whole file
    num_bytes  of the whole file
    licence    of its content
    about      its content, in a line
    """

    file: str
    sha256: str
    num_bytes: int
    licence: str
    about: str


MODELS = {
    "smollm2-135m": RealFile(
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        num_bytes=98_362_432,
        licence="Apache-2.0",
        about="SmolLM2 135M Instruct",
    ),
    "gemma-3-270m": RealFile(
        file="gemma-3-270m-q4_k_m.gguf",
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        num_bytes=253_113_024,
        licence="Gemma Terms of Use; do not redistribute the file",
        about="Gemma 3 270M",
    ),
}

TEXTS = {
    "wikitext-2": RealFile(
        file="texts/wikitext-2.txt",
        sha256="173c87a53759e0201f33e0ccf978e510c2042d7f2cb78229d9a50d79b9e7dd08",
        num_bytes=1_290_590,
        licence="CC-BY-SA-3.0",
        about="WikiText-2 raw, test split",
    ),
    "books": RealFile(
        file="texts/books.txt",
        sha256="aa11bebd82647ce4f149e31f442f7cde4dd7df0393cb2de2e351f1f176974473",
        num_bytes=895_714,
        licence="public domain",
        about="two novels of the public domain",
    ),
    "tinystories": RealFile(
        file="texts/tinystories.txt",
        sha256="20342a2e2e08a9e9b55550681a58017f69b0c1f0bb38c6f40627eeafaae58171",
        num_bytes=1_595_448,
        licence="CDLA-Sharing-1.0",
        about="TinyStories V2, part of the validation split",
    ),
    "wikitext-2-train": RealFile(
        file="texts/wikitext-2-train.txt",
        sha256="ed14f9ef053842b47270b885f9d4120f4bf6a5b9a00d19e786eb39144ec10cd3",
        num_bytes=2_887_164,
        licence="CC-BY-SA-3.0",
        about="WikiText-2 raw, start of the train split, for calibration",
    ),
}


def folder() -> Path:
    return Path(os.environ.get(VARIABLE) or FOLDER)


def is_real(spec: str) -> bool:
    return spec.startswith(PREFIX)


@cache
def real_file(spec: str, kind: str) -> Path:
    """The file that `real:NAME` means, whose content is checked once per process.

    kind     "model" or "text"
    raises   InputError for an unknown name, and for a file that is missing or changed
    """
    table = {"model": MODELS, "text": TEXTS}[kind]
    name = spec.removeprefix(PREFIX)
    if name not in table:
        raise InputError(
            f"unknown {kind} {spec!r}; known: {', '.join(PREFIX + one for one in table)}{nearest(name, table)}"
        )
    expected, path = table[name], folder() / table[name].file
    if not path.is_file():
        raise InputError(f"{spec}: {path} is not there; `make real` fetches models and texts, or set {VARIABLE}")
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected.sha256:
        raise InputError(
            f"{spec}: {path} has sha256 {found[:12]}..., expected {expected.sha256[:12]}...; "
            "remove it and fetch it again with `make real`"
        )
    return path
