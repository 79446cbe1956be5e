"""Methods' remarks on their rounding, in a line for each decoder layer."""

from collections.abc import Mapping

from quant.models import split_name


def remark_lines(remarks: Mapping[str, str]) -> list[str]:
    """remarks: canonical name of a weight -> its method's remark; equal ones of a layer become one line"""
    places: dict[tuple[int | None, str], list[str]] = {}
    for name, words in remarks.items():
        places.setdefault((split_name(name)[1], words), []).append(name)
    return [_line(layer, words, names) for (layer, words), names in places.items()]


def _line(layer: int | None, words: str, names: list[str]) -> str:
    if layer is None:
        return f"{names[0]}: {words}"
    modules = [name.removesuffix(".weight").rpartition(".")[2] for name in names]
    return f"layer {layer}: {words} for {', '.join(dict.fromkeys(modules))}"
