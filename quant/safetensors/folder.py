"""All tensors of a directory: model.safetensors, or the files that model.safetensors.index.json lists."""

from pathlib import Path

from quant.errors import InputError
from quant.json_file import read_json
from quant.regular_file import check_is_no_dead_link
from quant.safetensors.header import StoredTensor, read_header
from quant.safetensors.writer import INDEX_NAME


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model directory. raises InputError if there is no file or one is missing."""
    index, single = folder / INDEX_NAME, folder / "model.safetensors"
    if index.exists():
        names = sorted(set(_weight_map(index).values()))
        if single.exists() and single.name not in names:
            raise InputError(
                f"{folder}: {single.name} and {INDEX_NAME} name different weights; remove the one that is out of date"
            )
        return [folder / name for name in names]
    for path in (single, index):
        check_is_no_dead_link(path)
    if not single.exists():
        raise InputError(f"{folder}: neither model.safetensors nor {INDEX_NAME} is there; {_instead(folder)}")
    return [single]


def _instead(folder: Path) -> str:
    """The weights that the directory has in place of the two files, and what to do."""
    shards = sorted(folder.glob("model-*-of-*.safetensors"))
    if shards:
        return f"it has shards such as {shards[0].name}, so download {INDEX_NAME} as well"
    if any(folder.glob("adapter_model.*")):
        return "it has an adapter alone: merge it into its base model (merge_and_unload of peft), and name the result"
    if any(folder.glob("*.bin")) or any(folder.glob("*.pt*")):
        return "it has weights in pickles, which are not read: save the model with safe_serialization=True"
    return "other weight files are not read"


def read_tensors(folder: Path) -> dict[str, StoredTensor]:
    """Every tensor by name. raises InputError if an index and its files disagree, or a name is in two files."""
    tensors: dict[str, StoredTensor] = {}
    for path in weight_files(folder):
        for name, tensor in read_header(path).items():
            if name in tensors:
                raise InputError(f"{path}: tensor {name!r} is in {tensors[name].path.name} too")
            tensors[name] = tensor
    index = folder / INDEX_NAME
    if index.exists():
        for name, file in _weight_map(index).items():
            if name not in tensors or tensors[name].path.name != file:
                raise InputError(f"{index}: tensor {name!r} is not in {file}; the index and the files do not match")
    return tensors


def _weight_map(index: Path) -> dict[str, str]:
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise InputError(f"{index}: key 'weight_map' must be an object of tensor names and files")
    for name, file in weight_map.items():
        if not isinstance(file, str) or Path(file).name != file or not file.endswith(".safetensors"):
            raise InputError(
                f"{index}: tensor {name!r} is said to be in {file!r}, expected a .safetensors file beside it"
            )
        check_is_no_dead_link(index.parent / file)
        if not (index.parent / file).is_file():
            raise InputError(f"{index.parent}: shard {file} is missing; download it again")
    return weight_map
