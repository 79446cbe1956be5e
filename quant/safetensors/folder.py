"""All tensors of a directory: model.safetensors, or the files that model.safetensors.index.json lists."""

from pathlib import Path

from quant.errors import InputError
from quant.json_file import read_json
from quant.safetensors.header import StoredTensor, read_header
from quant.safetensors.writer import INDEX_NAME


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model directory. raises InputError if there is no file or one is missing."""
    index = folder / INDEX_NAME
    if index.exists():
        return [folder / name for name in sorted(set(_weight_map(index).values()))]
    single = folder / "model.safetensors"
    if not single.exists():
        raise InputError(
            f"{folder}: neither model.safetensors nor {INDEX_NAME} is there; other weight files are not read"
        )
    return [single]


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
        if not (index.parent / file).is_file():
            raise InputError(f"{index.parent}: shard {file} is missing; download it again")
    return weight_map
