"""GGUF's naming convention: SIDECAR-BaseName-SizeLabel-FineTune-Version-Encoding-Type-Shard.gguf.

source   ggml, docs/gguf.md, "GGUF Naming Convention"
"""

import re
from dataclasses import dataclass, replace

from quant.errors import InputError

FIRST_VERSION = "v1.0"  # of a model without a version
_SIZE = r"(?:\d+x)?\d+(?:\.\d+)?[QTBMK]"
_VERSION = r"v\d+(?:\.\d+)*"
# Beyond the specification's own expression a base name may have dots, which published ones have (Qwen2.5).
_WORD = r"[A-Za-z0-9.\s]+"
FILE_NAME = re.compile(
    r"(?:(?P<sidecar>mmproj|mtp)-)?"
    rf"(?P<base_name>{_WORD}(?:-{_WORD})*?)"
    r"-(?P<size_label>(?:\d+x)?\d+(?:\.\d+)?[A-Za-z](?:-[A-Za-z]+\d+(?:\.\d+)?[A-Za-z]+)?)"
    rf"(?:-(?P<fine_tune>{_WORD}(?:-{_WORD})*?))?"
    rf"-(?P<version>{_VERSION})"
    r"(?:-(?P<encoding>(?!LoRA\b|vocab\b)\w+))?"
    r"(?:-(?P<kind>LoRA|vocab))?"
    r"(?:-(?P<number>\d{5})-of-(?P<count>\d{5}))?"
    r"\.gguf"
)
# Additions of other tools to a model's name: weights' encoding, shard, suffix.
_TRAIL = re.compile(r"(?:[-.](?:I?Q\d\w*|B?F16|F32))?(?:-\d{5}-of-\d{5})?(?:\.gguf)?$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class GGUFName:
    """The parts of a file's name, unchanged; `str` joins them.

    size_label   weights as 1.1B, 260K or, with experts, 8x7B
    kind         LoRA or vocab; None for a model
    shard        (number from 1, count), or None for a whole file
    """

    base_name: str
    size_label: str
    fine_tune: str | None = None
    version: str = FIRST_VERSION
    encoding: str | None = None
    kind: str | None = None
    shard: tuple[int, int] | None = None
    sidecar: str | None = None

    def __str__(self) -> str:
        shard = self.shard and f"{self.shard[0]:05d}-of-{self.shard[1]:05d}"
        parts = (
            self.sidecar,
            self.base_name,
            self.size_label,
            self.fine_tune,
            self.version,
            self.encoding,
            self.kind,
            shard,
        )
        return "-".join(part for part in parts if part) + ".gguf"


def parse_name(file_name: str) -> GGUFName:
    """The parts of a name that keeps the convention. raises InputError for one that does not"""
    match = FILE_NAME.fullmatch(file_name)
    if match is None:
        raise InputError(
            f"{file_name}: not of the form BaseName-SizeLabel-FineTune-Version-Encoding-Type-Shard.gguf; base name, "
            "size label (1.1B) and version (v1.0) must be there"
        )
    parts = match.groupdict()
    number, count = parts.pop("number"), parts.pop("count")
    if number is not None and not 1 <= int(number) <= int(count):
        raise InputError(f"{file_name}: shard {int(number)} of {int(count)} cannot be; numbers run from 1")
    return GGUFName(**parts, shard=None if number is None else (int(number), int(count)))


def size_label(num_weights: int, num_experts: int = 0, num_expert_weights: int = 0) -> str:
    """Two digits or more, with a letter for the power of a thousand.

    num_weights         of the whole model
    num_expert_weights  of all routed experts together; the label then counts the weights of a model with one expert
    """
    if num_experts:
        each = num_weights - num_expert_weights + num_expert_weights // num_experts
        return f"{num_experts}x{size_label(each)}"
    letter, unit = next(
        ((letter, unit) for letter, unit in (("T", 1e-12), ("B", 1e-9), ("M", 1e-6)) if num_weights * unit > 1),
        ("K", 1e-3),
    )
    size = num_weights * unit
    decimals = 2 - len(str(round(size)).lstrip("0"))
    return f"{size:.{max(decimals, 0)}f}{letter}"


def name_of_model(model: str, label: str) -> GGUFName:
    """The parts of a model's own name, such as TinyLlama-1.1B-Chat-v1.0.

    model   a spec, or a directory's or file's name
    label   size label if the name has no such label
    """
    model = _TRAIL.sub("", re.split(r"[/:]", model.rstrip("/"))[-1])
    words = [word for word in re.sub(r"[^A-Za-z0-9.\s-]+", "-", model).split("-") if word.strip(". ")]
    version = next((word for word in words if re.fullmatch(_VERSION, word)), FIRST_VERSION)
    words = [word for word in words if word != version] or ["model"]
    at = next((i for i, word in enumerate(words) if i and re.fullmatch(_SIZE, word, re.IGNORECASE)), None)
    if at is None:
        return GGUFName("-".join(words), label, version=version)
    return GGUFName(
        "-".join(words[:at]), words[at].upper().replace("X", "x"), "-".join(words[at + 1 :]) or None, version
    )


def encoded(name: GGUFName, recipe: str) -> GGUFName:
    """The name with a recipe's, as an encoding: Q4_K_M, IMATRIX_Q4_K_M."""
    return replace(name, encoding=re.sub(r"\W+", "_", recipe).strip("_").upper())
