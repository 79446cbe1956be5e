"""QuantizationJob: source, recipe, formats and output of one quantization, decided once, before the work begins."""

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from math import prod
from pathlib import Path

from quant.errors import InputError
from quant.formats import TurnedFp4, get_format
from quant.formats.base import rows_of
from quant.kv import get_kv_format
from quant.methods import Method, Rtn
from quant.models import EMBEDDING, HEAD
from quant.present import present
from quant.recipes import RECIPES, Recipe, TensorChoice
from quant.recipes.llama_mix import LlamaMix
from quant.recipes.mixes import LABELS
from quant.rotation import RotatedSource
from quant.source import Source, TensorInfo

FLOATS = ("f32", "f16", "bf16")


@dataclass(frozen=True, slots=True)
class Output:
    """The place of an artifact. `quant.artifacts.output` decides it.

    path             the GGUF file or the directory
    container        "gguf" or "hf"
    max_shard_bytes  size limit of the tensors in one GGUF file; None: a single file
    makes_folder     whether the user left the file's name to us, so that a missing folder is made
    """

    path: Path
    container: str
    max_shard_bytes: int | None = None
    makes_folder: bool = False

    def make_folder(self) -> None:
        """Makes the missing folder of a file whose name was left to us."""
        if self.makes_folder:
            self.path.parent.mkdir(exist_ok=True)


@dataclass(frozen=True, slots=True)
class QuantizationJob:
    """One model and one recipe, decided. Everything after `make_job` reads this and decides nothing again.

    source  the model that is rounded: as it is, or rotated if the recipe says so
    recipe  fitted to the container
    choices  canonical name -> TensorChoice, in the order of source.tensors
    output  None: the model serves this process alone and is not written
    """

    source: Source
    recipe: Recipe
    choices: Mapping[str, TensorChoice]
    output: Output | None = None

    @property
    def container(self) -> str:
        """The kind of artifact that the formats are chosen for: "gguf" or "hf"."""
        return self.recipe.container

    @property
    def original(self) -> Source:
        """The model as the user named it."""
        return self.source.source if isinstance(self.source, RotatedSource) else self.source

    @property
    def needs_calibration(self) -> bool:
        """Whether a method of a tensor, or the recipe's KV format, needs statistics of activations."""
        methods = [self.recipe.make_method(), *(row.method for row in self.choices.values() if row.method is not None)]
        if self.recipe.learned or any(method.needs for method in methods):
            return True
        return self.recipe.kv is not None and get_kv_format(self.recipe.kv).calibrated

    @property
    def weights(self) -> tuple[object, ...]:
        """Equal for two jobs of one source that make the same weights in the same layout."""
        packing = self.recipe.packing if self.container == "hf" else None
        own = self.recipe.make_method()
        tensors = {name: (choice.format, choice.method or own) for name, choice in self.choices.items()}
        return self.container, packing, self.recipe.kv, tensors

    def method_of(self, name: str) -> Method:
        """The method that rounds the tensor if it has statistics."""
        return self.choices[name].method or self.recipe.make_method()

    def method_name(self, name: str) -> str | None:
        """The method that rounds a tensor; None for norms, biases and tensors that stay floats."""
        if len(self.source.tensors[name].shape) == 1 or self.choices[name].format in FLOATS:
            return None
        method = self.method_of(name)
        # The input of an embedding is tokens, which have no statistics. Not every method uses those of a tied head.
        looked_up = name == EMBEDDING and (HEAD in self.source.tensors or not method.weighs_tied_tables)
        return (without_statistics(method) if looked_up else method).name

    @property
    def description(self) -> str:
        """Text of all that decides bytes in recipe and choices: equal texts give equal bytes."""
        recipe = self.recipe
        methods = {name: row.method for name, row in self.choices.items() if row.method is not None}
        return json.dumps(
            {
                "method": recipe.method,
                "options": dict(recipe.options),
                "kv": recipe.kv,
                **({"rotated": True} if recipe.rotated else {}),
                **({"learned": True} if recipe.learned else {}),
                "formats": {name: row.format for name, row in self.choices.items()},
                "methods": {name: [method.name, asdict(method)] for name, method in methods.items()},
            },
            sort_keys=True,
        )

    def foreseen_tensors(self) -> dict[str, TensorInfo]:
        """The tensors after quantization, as far as they are known without calibration."""
        return {name: self._foreseen(name) for name in self.choices}

    def _foreseen(self, name: str) -> TensorInfo:
        info, fmt, method = self.source.tensors[name], get_format(self.choices[name].format), self.method_of(name)
        if info.format == fmt.name and not method.needs:
            return info
        shared = () if len(info.shape) == 1 else method.shared(fmt, info.shape[-1])
        return TensorInfo(info.shape, fmt.name, fmt.size_bytes(info.shape), shared)

    def rounded_again(self) -> list[str]:
        """Tensors that are quantized already and get another quantized format: the losses of both roundings add up."""
        exact = (*FLOATS, "f64")
        stored = {name: info.format for name, info in self.original.tensors.items() if info.format not in exact}
        turned = self.original is not self.source
        return [
            name
            for name, row in self.choices.items()
            if name in stored and row.format not in FLOATS and (turned or row.format != stored[name])
        ]

    def warnings(self) -> Iterator[str]:
        """Lines on facts that a recipe's name hides: tensors in other formats, and weights that are rounded twice."""
        for (wanted, instead), count in self.fallbacks().items():
            used, meant = (get_format(name).bits_per_weight for name in (instead, wanted))
            bits = f"{used:.4g} bits per weight, not {meant:.4g}"
            yield f"rows that are not a multiple of a block of {wanted}: {count} x {instead} instead, {bits}"
        yield from self._growth()
        if self.recipe.online:
            yield f"rotated while the model runs: {' and '.join(self.recipe.online)}; no other program loads this model"
        if any(isinstance(get_format(row.format), TurnedFp4) for row in self.choices.values()):
            yield (
                "inputs of linears are turned while the model runs (transform_config); transformers does not read that "
                "and would compute something else: apply it as docs/quantize.md shows"
            )
        if names := self.rounded_again():
            was = self.original.tensors[names[0]].format
            yield (
                f"{self.source.spec} is quantized already ({len(names)} tensors, {names[0]} in {was}); this rounds "
                "what was rounded; to get the quality of a recipe, quantize the original"
            )

    def _growth(self) -> Iterator[str]:
        """A line on sizes if the format that names the recipe is replaced, or if the result outgrows the source."""
        main = self.recipe.policy.default if isinstance(self.recipe.policy, LlamaMix) else None
        odd = {name for name, row in self.choices.items() if row.in_place_of is not None}
        of_main = [name for name in odd if self.choices[name].in_place_of == main]
        size, source = self.size_bytes, sum(info.size_bytes for info in self.original.tensors.values())
        if not odd or (size <= source and not of_main):
            return
        whole = size - sum(self._foreseen(name).size_bytes - self._wanted_bytes(name) for name in odd)
        line = f"{self.recipe.name} then takes {_megabytes(size)}, not {_megabytes(whole)}"
        line += f", and its source {_megabytes(source)}" if size > source else ""
        smaller = [job for job in self._mixes_that_hold(of_main or odd) if job.size_bytes < size]
        if smaller:
            fitting = [job for job in smaller if job.size_bytes <= whole]
            other = max(fitting, key=_size) if fitting else min(smaller, key=_size)
            line += f"; {other.recipe.name} fits these rows and takes {_megabytes(other.size_bytes)}"
        yield line

    @property
    def size_bytes(self) -> int:
        """Bytes of the tensors after quantization, as far as they are known without calibration."""
        return sum(info.size_bytes for info in self.foreseen_tensors().values())

    def _wanted_bytes(self, name: str) -> int:
        """Bytes of the tensor in the format of its rule, as if its rows were whole blocks."""
        wanted = get_format(present(self.choices[name].in_place_of))
        return int(prod(self.source.tensors[name].shape) * wanted.bits_per_weight / 8)

    def _mixes_that_hold(self, names: Collection[str]) -> "Iterator[QuantizationJob]":
        """Jobs of the other mixes of llama.cpp by the same method whose main format holds the rows of these tensors."""
        rows = {rows_of(self.source.tensors[name].shape)[1] for name in names}
        for recipe in RECIPES.values() if self.recipe.name in RECIPES else ():
            mix = recipe.policy
            if not isinstance(mix, LlamaMix) or recipe.method != self.recipe.method or mix.label not in LABELS:
                continue
            if all(get_format(mix.default).holds_row(row) for row in rows):
                yield replace(self, recipe=recipe, choices=recipe.choose(self.source))

    def fallbacks(self) -> dict[tuple[str, str], int]:
        """(format of the recipe, format used instead) -> number of tensors whose rows do not divide into its blocks."""
        return dict(
            Counter((row.in_place_of, row.format) for row in self.choices.values() if row.in_place_of is not None)
        )


def _megabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:.{1 if num_bytes >= 1e6 else 3}f} MB"


def _size(job: QuantizationJob) -> int:
    return job.size_bytes


def make_job(source: Source, recipe: Recipe, output: Output | None = None) -> QuantizationJob:
    """The job of quantizing `source` by `recipe`: for `output`, or for this process alone.

    raises   InputError if the container of `output` cannot hold the recipe's formats, if a method cannot round to its
             tensor's format, if a rotation would change the model, and as `Recipe.choose`
    """
    source = RotatedSource(source, recipe.online) if recipe.rotated else source
    if output is not None:
        recipe = recipe.in_container(output.container)
    job = QuantizationJob(source, recipe, recipe.choose(source), output)
    _check_methods(job)
    return job


def _check_methods(job: QuantizationJob) -> None:
    for name, row in job.choices.items():
        method = job.method_of(name)
        if job.method_name(name) == method.name:
            try:
                method.check_format(get_format(row.format), job.source.tensors[name].shape[-1])
            except InputError as error:
                raise InputError(f"{name}: {error}") from error


def without_statistics(method: Method) -> Method:
    """The method for tensors that have no statistics, such as the embedding: equally careful, without calibration."""
    return Rtn(effort=getattr(method, "effort", "fast")) if method.needs else method
