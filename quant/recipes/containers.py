"""Formats that the two kinds of artifact can hold."""

from collections.abc import Callable
from dataclasses import dataclass

from quant.errors import InputError
from quant.formats import ActivationFormat, Format, Fp4Format, IntGroupFormat, TrellisFormat, get_format


@dataclass(frozen=True, slots=True)
class Container:
    """vectors      format of 1-D tensors: that of norms in convert_hf_to_gguf and Hugging Face checkpoints
    holds        whether an artifact of this kind can hold a format
    last_resort  format of rows that neither a format nor its fallback holds; None: such a row is an error
    """

    vectors: str
    holds: Callable[[Format], bool]
    last_resort: str | None


# Layouts of quantized parts in a Hugging Face directory, by the `quant_method` of its config.json.
PACKINGS = ("compressed-tensors", "gptq", "bitsandbytes", "trellis", "rotated")

LINEAR_FORMATS = (IntGroupFormat, ActivationFormat, Fp4Format, TrellisFormat)  # of linears in a Hugging Face directory

CONTAINERS = {
    "gguf": Container(
        vectors="f32",
        holds=lambda fmt: fmt.gguf_type is not None,
        last_resort="f16",  # as in llama.cpp, which also falls back from super-blocks of 256 to blocks of 32
    ),
    "hf": Container(
        vectors="bf16",
        holds=lambda fmt: fmt.name in ("f32", "f16", "bf16") or isinstance(fmt, LINEAR_FORMATS),
        last_resort=None,
    ),
}


def fit_row(name: str, format_name: str, row_size: int, container: str) -> str:
    """This format, or the first of its fallbacks that holds rows of this size.

    raises   InputError naming tensor, row and format if no format does
    """
    fallbacks = get_format(format_name).fallback, CONTAINERS[container].last_resort
    for candidate in (format_name, *fallbacks):
        if candidate is not None and get_format(candidate).holds_row(row_size):
            return candidate
    block_size = get_format(format_name).block_size
    raise InputError(
        f"{name}: {format_name} needs rows of a multiple of {block_size} weights, got {row_size}; "
        f"{_alternatives(get_format(format_name), row_size)}"
    )


GROUP_SIZES = (256, 128, 64, 32, 16)  # those that other tools' kernels know


def _alternatives(fmt: Format, row_size: int) -> str:
    """Formats of the same bits that hold such rows, in words."""
    if not isinstance(fmt, IntGroupFormat):
        return "in a YAML recipe give it another format"
    sizes = [size for size in GROUP_SIZES if row_size % size == 0]
    names = [IntGroupFormat(fmt.bits, size, fmt.symmetric).name for size in (*sizes, None)]
    return f"in a YAML recipe give it {' or '.join(names)} (per channel)"
