"""The places that a search gives a format.

GGUF: one per tensor of the file, so a stack of experts is one place. A Hugging Face directory: one per linear of a
decoder layer. Linears that inference engines join into one product share a place, because these engines expect one
scheme of all its parts: query, key and value; gate and up; all experts of a layer. transformers reads the experts of
all layers by one scheme, and not in floats, so these places share a format of integers.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import prod

from quant.formats import get_format
from quant.job import FLOATS, make_job
from quant.models import POSITIONS, ModelConfig, expected_tensors
from quant.recipes import RECIPES
from quant.recipes.containers import fit_row
from quant.recipes.roles import Role, gguf_place, is_decoder_linear, place_of
from quant.source import Source

GGUF, HF = "gguf", "hf"  # containers
SUPER_BLOCK = 256
# GGUF's formats by size, for rows of whole super-blocks and for other rows. Small blocks take as many bits as
# super-blocks and lose more, so the former leave them out: each grid costs a GPTQ run over the sampled rows.
FORMATS = ("q2_k", "q3_k", "iq4_xs", "q4_k", "q5_k", "q6_k", "q8_0", "f16")
SMALL_FORMATS = ("iq4_nl", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "f16")
# Formats of weights alone in compressed-tensors. A mix uses the first of each line that holds every row of the model,
# so that each format is also a recipe of the whole model.
INT_FORMATS = (
    ("w2g64", "w2g32", "w2"),
    ("w3g128", "w3g64", "w3g32", "w3"),
    ("w4g128", "w4g64", "w4g32", "w4"),
    ("w4g32", "w4"),
    ("w8",),
    ("bf16",),
)
EXPERT = re.compile(r"\.experts\.\d+\.")
JOINED = {"q_proj": "qkv_proj", "k_proj": "qkv_proj", "v_proj": "qkv_proj"} | dict.fromkeys(
    ("gate_proj", "up_proj"), "gate_up_proj"
)


@dataclass(frozen=True, slots=True)
class Site:
    """One tensor of a GGUF file, or linears of a Hugging Face directory that share a format.

    name     of the tensor in the file, or of the module that holds the linears
    names    canonical names of the tensors that it holds: several for a stack of experts and for joined linears
    layer    None outside the decoder layers
    formats  format -> bytes; those that hold the rows
    """

    name: str
    names: tuple[str, ...]
    layer: int | None
    formats: dict[str, int]
    container: str = GGUF

    @property
    def is_experts(self) -> bool:
        return EXPERT.search(self.names[0]) is not None

    @property
    def shares_format(self) -> bool:
        """Whether all places like this one get the same format."""
        return self.container == HF and self.is_experts


def sites_of(source: Source, container: str = GGUF) -> list[Site]:
    """The matrices of the model that a mix may change.

    In GGUF all but routers of experts and tables of positions, which stay in floats; in a directory the decoder's
    linears, as in the field's checkpoints.
    """
    config = ModelConfig.of(source)
    if container == HF:
        linears = [name for name in source.tensors if is_decoder_linear(name)]
        rows = {source.tensors[name].shape[-1] for name in linears}
        formats = dict.fromkeys(_first_that_holds(some, rows) for some in INT_FORMATS)
        return [_joined(name, names, source, formats) for name, names in _grouped(linears, _module).items()]
    expected = expected_tensors(config)
    matrices = [
        name
        for name, info in source.tensors.items()
        if len(info.shape) > 1 and name != POSITIONS and gguf_place(name, config).role is not Role.ROUTER
    ]
    stacks = _grouped(matrices, lambda name: expected[name].gguf_name)
    return [_site(name, names, source, config) for name, names in stacks.items()]


def _grouped(names: Sequence[str], place: Callable[[str], str]) -> Mapping[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(place(name), []).append(name)
    return {key: tuple(some) for key, some in found.items()}


def _module(name: str) -> str:
    """ "model.layers.0.self_attn.q_proj.weight" -> "model.layers.0.self_attn.qkv_proj" """
    expert = EXPERT.search(name)
    if expert is not None:
        return f"{name[: expert.start()]}.experts"
    parent, _, word = name.removesuffix(".weight").rpartition(".")
    return f"{parent}.{JOINED.get(word, word)}"


def _joined(name: str, names: tuple[str, ...], source: Source, formats: Iterable[str]) -> Site:
    if EXPERT.search(names[0]):
        formats = [fmt for fmt in formats if fmt not in FLOATS]
    return Site(name, names, place_of(names[0]).layer, _sizes(names, source, formats), HF)


def _first_that_holds(formats: Sequence[str], rows: Iterable[int]) -> str:
    """The last has one scale per row, so it holds rows of any size."""
    return next(fmt for fmt in formats if all(get_format(fmt).holds_row(row_size) for row_size in rows))


def _site(name: str, names: tuple[str, ...], source: Source, config: ModelConfig) -> Site:
    row_size = source.tensors[names[0]].shape[-1]
    formats = SMALL_FORMATS if row_size % SUPER_BLOCK else FORMATS
    fitting = dict.fromkeys(fit_row(names[0], fmt, row_size, GGUF) for fmt in formats)
    return Site(name, names, gguf_place(names[0], config).layer, _sizes(names, source, fitting))


def _sizes(names: Iterable[str], source: Source, formats: Iterable[str]) -> dict[str, int]:
    shapes = [source.tensors[name].shape for name in names]
    return {fmt: sum(get_format(fmt).size_bytes(shape) for shape in shapes) for fmt in formats}


def fixed_bytes(source: Source, sites: Sequence[Site]) -> int:
    """Bytes of the tensors that the search leaves alone: GGUF keeps them in float32, a directory in bfloat16."""
    searched = {name for site in sites for name in site.names}
    if sites[0].container == HF:
        stored = make_job(source, RECIPES["bf16"]).foreseen_tensors()
        return sum(info.size_bytes for name, info in stored.items() if name not in searched)
    return sum(4 * prod(info.shape) for name, info in source.tensors.items() if name not in searched)


def num_searched(source: Source, sites: Sequence[Site]) -> int:
    """Weights that a mix may change."""
    return sum(prod(source.tensors[name].shape) for site in sites for name in site.names)


def patterns_of(site: Site, names: list[str]) -> list[str]:
    """Patterns of a recipe that match the site's tensors and no others of the model. names: of all its tensors"""
    patterns = list(dict.fromkeys(EXPERT.sub(".experts.*.", name) for name in site.names))
    matched = [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]
    return patterns if sorted(matched) == sorted(site.names) else list(site.names)
