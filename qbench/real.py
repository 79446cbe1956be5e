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
    num_bytes  of the whole file
    licence    of its content
    about      its content, in a line
    sha256     of the whole file
    """

    file: str
    num_bytes: int
    licence: str
    about: str
    sha256: str


# fmt: off
MODELS = {
    "smollm2-135m": RealFile(
        "SmolLM2-135M-Instruct.Q4_1.gguf", 98_362_432, "Apache-2.0", "SmolLM2 135M Instruct",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"),
    "gemma-3-270m": RealFile(
        "gemma-3-270m-q4_k_m.gguf", 253_113_024, "Gemma Terms of Use; do not redistribute the file", "Gemma 3 270M",
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"),
}
TEXTS = {
    "wikitext-2": RealFile(
        "texts/wikitext-2.txt", 1_290_590, "CC-BY-SA-3.0", "WikiText-2 raw, test split",
        "173c87a53759e0201f33e0ccf978e510c2042d7f2cb78229d9a50d79b9e7dd08"),
    "books": RealFile(
        "texts/books.txt", 895_714, "public domain", "two novels of the public domain",
        "aa11bebd82647ce4f149e31f442f7cde4dd7df0393cb2de2e351f1f176974473"),
    "tinystories": RealFile(
        "texts/tinystories.txt", 1_595_448, "CDLA-Sharing-1.0", "TinyStories V2, part of the validation split",
        "20342a2e2e08a9e9b55550681a58017f69b0c1f0bb38c6f40627eeafaae58171"),
    "wikitext-2-train": RealFile(
        "texts/wikitext-2-train.txt", 2_887_164, "CC-BY-SA-3.0", "WikiText-2 raw, start of the train split",
        "ed14f9ef053842b47270b885f9d4120f4bf6a5b9a00d19e786eb39144ec10cd3"),
}
ITEMS = {
    "lambada": RealFile(
        "tasks/lambada.jsonl", 1_781_875, "CC-BY-4.0", "LAMBADA as OpenAI has it, test split",
        "9acdcb12e8c2ef4eb3d0958b547a8c7076488df2d6ff460377881ab3841f3d97"),
    "piqa": RealFile(
        "tasks/piqa.jsonl", 517_689, "AFL-3.0", "PIQA, validation split",
        "61533005e22f175534909b1ec8eacb6da03c233933558d1bafb15787453b1f55"),
    "arc_easy": RealFile(
        "tasks/arc_easy.jsonl", 795_357, "CC-BY-SA-4.0", "ARC, easy, test split",
        "874354cf372667530bd6cbd2d78dca2d657c5e2e746f53cf01d1e9d3a90cbc3d"),
    "arc_challenge": RealFile(
        "tasks/arc_challenge.jsonl", 443_517, "CC-BY-SA-4.0", "ARC, challenge, test split",
        "03227c30fd557ad1416c2cb955eeb6dc79eeb21e0679456a1ccd42eaccc0ff87"),
    "hellaswag": RealFile(
        "tasks/hellaswag.jsonl", 749_257, "MIT", "HellaSwag, 1,000 items of the validation split",
        "f088d9cc47cba2550534751db8ac4886371d0eaaad5d0d665484eb6112547296"),
    "copa": RealFile(
        "tasks/copa.jsonl", 18_169, "BSD-2", "COPA, validation split",
        "fa61467cc251010178ed72f8ca82a0fceefc4ca9a85f87ec3b6102955e1a1f1a"),
    "blimp": RealFile(  # the files of a folder, joined in the order of their names
        "tasks/blimp.jsonl", 6_061_239, "CC-BY-4.0", "BLiMP, 34 paradigms of 1,000 pairs",
        "0d8f0dc543d3a7275da360e3654a16ed5ce72542d9f8f799c5f66ab6a9bb57bb"),
}
# fmt: on
TABLES = {"model": MODELS, "text": TEXTS, "items": ITEMS}


def folder() -> Path:
    return Path(os.environ.get(VARIABLE) or FOLDER)


def is_real(spec: str) -> bool:
    return spec.startswith(PREFIX)


@cache
def real_file(spec: str, kind: str) -> Path:
    """The file that `real:NAME` means, whose content is checked once per process.

    kind     of TABLES
    raises   InputError for an unknown name, and for a file that is missing or changed
    """
    table = TABLES[kind]
    name = spec.removeprefix(PREFIX)
    if name not in table:
        raise InputError(
            f"unknown {kind} {spec!r}; known: {', '.join(PREFIX + one for one in table)}{nearest(name, table)}"
        )
    expected, path = table[name], folder() / table[name].file
    if not path.is_file():
        raise InputError(f"{spec}: {path} is not there; `make real` fetches it, or set {VARIABLE}")
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected.sha256:
        raise InputError(
            f"{spec}: {path} has sha256 {found[:12]}..., expected {expected.sha256[:12]}...; "
            "remove it and fetch it again with `make real`"
        )
    return path
