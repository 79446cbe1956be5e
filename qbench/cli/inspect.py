"""`qbench inspect MODEL`: contents of a model, without reading its weights."""

import click

from qbench.cli.help import Command
from qbench.cli.output import echo, json_option, print_json, print_pairs, readable_bytes
from quant.sizes import size_summary


@click.command("inspect", cls=Command, examples=("qbench inspect ref:llama", "qbench inspect model.gguf --json"))
@click.argument("model")
@json_option
def command(model: str, as_json: bool) -> None:
    """Contents of MODEL: shape, tokenizer, size, and every tensor with its format."""
    inspected = describe(model)
    if as_json:
        print_json(inspected)
        return
    for tensor in inspected.pop("tensors"):
        shape = "x".join(map(str, tensor["shape"]))
        echo(f"{tensor['name']:<48} {shape:>13}  {tensor['format']:<7} {readable_bytes(tensor['size_bytes']):>10}")
    parts = inspected.pop("bits_per_weight_by_part")
    inspected["config"] = ", ".join(f"{key} {value}" for key, value in inspected["config"].items() if value is not None)
    inspected["size"] = readable_bytes(inspected.pop("size_bytes"))
    inspected["bits_per_weight"] = f"{inspected['bits_per_weight']:.4f} (" + (
        ", ".join(f"{part} {bits:.4f}" for part, bits in parts.items() if bits is not None) + ")"
    )
    files, bits = inspected.pop("file_bytes"), inspected.pop("file_bits_per_weight")
    if files is not None:
        inspected["files"] = f"{readable_bytes(files)}, {bits:.4f} bits per weight with headers and tokenizer"
    print_pairs(inspected)


# The keys of config.json that decide the cost of running a model.
CONFIG_KEYS = (
    "model_type",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
    "max_position_embeddings",
    "tie_word_embeddings",
)


def describe(spec: str) -> dict:
    """Size, true bits per weight by part, config, tokenizer, and one row per tensor."""
    from qbench.sources import open_source
    from quant.artifacts.digests import file_bytes  # imports numpy and gguf

    source = open_source(spec)
    tokenizer, size, files = source.tokenizer, size_summary(source.tensors), file_bytes(source)
    return {
        "model": spec,
        **size.to_json(),
        "file_bytes": files,
        "file_bits_per_weight": None if files is None else 8 * files / size.num_weights,
        "config": {key: source.config.get(key) for key in CONFIG_KEYS},
        "tokenizer": None if tokenizer is None else f"bos {tokenizer.bos_token_id}, eos {tokenizer.eos_token_id}",
        "tensors": [
            {"name": name, "shape": list(info.shape), "format": info.format, "size_bytes": info.size_bytes}
            for name, info in source.tensors.items()
        ],
    }
