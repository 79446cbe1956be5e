"""Reference pages that are made from the registries, so that they cannot differ from the code."""

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence

import click

from docs.hooks.results import WIDE
from docs.hooks.suite_keys import AXIS_KEYS, SECTION_KEYS, SUITE_KEYS
from qbench.cli.help import Command
from qbench.cli.main import COMMANDS, cli
from qbench.policies.registry import listed
from qbench.store.columns import COLUMNS
from quant.formats import FORMATS
from quant.kv import KV_FORMATS
from quant.recipes.listing import list_recipes

# title -> paragraphs
INTRODUCTIONS = {
    "Commands": (
        "Each command does one thing. `--json` prints data for machines on stdout; progress and warnings go to stderr.",
        "Exit status: 0 success, 1 a red gate or no answer, 2 bad input, 70 a bug in qbench. [Troubleshooting]"
        "(../troubleshooting.md#exit-statuses) has the next step for each.",
    ),
    "Recipes": (
        "A recipe says which format each weight tensor gets, and by which method. `qbench recipes` prints this table.",
        "Bits per weight are those of the main format. `qbench quantize --dry-run` shows the format of every tensor.",
        "Add `+` and a [KV format](kv-formats.md) to any recipe, as in `q4_k_m+kv-int8`. For a recipe of your"
        " own, see [Quantize a model](../quantize.md).",
    ),
    "Weight formats": (
        "A format says how a block of weights becomes bytes. A row of a matrix has to be whole blocks; if it "
        "is not, GGUF takes the fallback.",
        "Names of integer formats follow a grammar: `w4g128` has 4 bits and one scale per 128 weights, "
        "`-asym` adds a zero point, `w8a8` also quantizes activations.",
    ),
    "KV formats": (
        "The KV format is the encoding of stored keys and values: `--kv` on the command line, `kv_formats` in"
        " suites. The default is `f32`.",
        "`qbench bench` and `qbench plan` print the bytes per token of your model, scales included.",
    ),
    "Cache policies": (
        "A cache policy decides which tokens the KV cache keeps or reads: `--policy` on the command line, "
        "`policies` in suites.",
        "`qbench policies` prints this table.",
    ),
    "Records": (
        "A record is one measured fact: a line of JSON with its case, metrics, raw samples, machine, commit "
        "and versions.",
        "Sweeps append to `runs/<suite>/`, and `results/` holds the records that are kept.",
        "`qbench query` and `qbench.results()` read all records as one table with these columns.",
    ),
    "Suites in YAML": ("A suite says what a sweep measures. An unknown key is an error that lists the valid keys.",),
}

# Sizes of a common model, for which bytes per token of KV formats are shown.
KV_HEADS, HEAD_DIM = 8, 128


def generated_pages() -> dict[str, str]:
    """Path under docs/ -> Markdown."""
    return {
        "reference/commands.md": commands_page(),
        **{f"reference/commands/{name}.md": command_page(name) for name in COMMANDS},
        "reference/recipes.md": WIDE + recipes_page(),
        "reference/formats.md": formats_page(),
        "reference/kv-formats.md": kv_formats_page(),
        "reference/policies.md": WIDE + policies_page(),
        "reference/suites.md": suites_page(),
        "reference/records.md": records_page(),
    }


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table. `|` in cells is escaped, apart from code, which Markdown reads as it is."""

    def escaped(cell: object) -> str:
        return re.sub(r"`[^`]*`|\|", lambda match: "\\|" if match[0] == "|" else match[0], str(cell))

    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(escaped, line)) + " |" for line in lines) + "\n"


def page(title: str, body: str) -> str:
    """A page: its title, its introduction, and a table or other Markdown."""
    return "\n\n".join((f"# {title}", *INTRODUCTIONS[title], body))


def commands_page() -> str:
    rows = [(f"[`qbench {name}`](commands/{name}.md)", text) for name, text in COMMANDS.items()]
    return page("Commands", table(("Command", "Use"), rows))


def command_page(name: str) -> str:
    """Usage, help and options of a command, as `--help` has them."""
    command = cli.get_command(click.Context(cli), name)
    assert isinstance(command, Command)
    ctx = click.Context(command, info_name=f"qbench {name}")
    usage = f"qbench {name} {' '.join(command.collect_usage_pieces(ctx))}"
    tables = []
    for title, options in command.options(ctx).items():
        records = [record for one in options if (record := one.get_help_record(ctx)) is not None]
        rows = [(f"`{option}`", " ".join(text.split()).replace("<", "&lt;")) for option, text in records]
        tables += [f"## {title}", table(("Option", "Meaning"), rows)]
    examples = "\n".join(command.examples)
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    help_text = "\n\n".join(  # click keeps the lines of a paragraph that begins with \b
        f"```text\n{text[2:]}\n```" if text.startswith("\b\n") else text for text in paragraphs
    )
    usage_text, examples_text = f"```text\n{usage}\n```", f"```sh\n{examples}\n```"
    return "\n\n".join((f"# qbench {name}", help_text, usage_text, *tables, "## Examples", examples_text))


def recipes_page() -> str:
    rows = [
        (
            f"`{row.recipe}`",
            f"`{row.format}`",
            f"{row.bits_per_weight:.4g}",
            row.method,
            "yes" if row.calibrated else "no",
            row.container,
            row.loaded_by,
            row.paper or "",
        )
        for row in list_recipes()
    ]
    head = ("Recipe", "Main format", "Bits per weight", "Method", "Calibration", "Container", "Loaded by", "Paper")
    return page("Recipes", table(head, rows))


def formats_page() -> str:
    rows = [
        (
            f"`{name}`",
            f"{fmt.bits_per_weight:.5g}",
            fmt.block_size,
            "" if fmt.gguf_type is None else fmt.gguf_type,
            f"`{fmt.fallback}`" if fmt.fallback else "",
            "yes" if fmt.writes else "no",
        )
        for name, fmt in FORMATS.items()
    ]
    head = ("Format", "Bits per weight", "Weights per block", "GGUF type number", "Fallback for odd rows", "Written")
    return page("Weight formats", table(head, rows))


def kv_formats_page() -> str:
    rows = [
        (
            f"`{name}`",
            f"{fmt.bytes_per_token(KV_HEADS, HEAD_DIM):g}",
            "yes" if fmt.calibrated else "no",
            fmt.residual or "",
        )
        for name, fmt in KV_FORMATS.items()
    ]
    head = (
        "KV format",
        f"Bytes per token and layer ({KV_HEADS} KV heads of {HEAD_DIM})",
        "Calibration",
        "Tokens kept as float16",
    )
    return page("KV formats", table(head, rows))


def policies_page() -> str:
    rows = [(f"`{row.usage}`", row.description) for row in listed()]
    return page("Cache policies", table(("Policy and its defaults", "Rule"), rows))


def suites_page() -> str:
    parts = {"Keys": SUITE_KEYS, "Axes": AXIS_KEYS, **{f"`{section}`": keys for section, keys in SECTION_KEYS.items()}}
    sections = [f"## {title}\n\n{key_table(keys)}" for title, keys in parts.items()]
    return page("Suites in YAML", "\n".join(sections))


def key_table(keys: Mapping[str, str]) -> str:
    return table(("Key", "Meaning"), [(f"`{key}`", text) for key, text in keys.items()])


def records_page() -> str:
    rows = [(f"`{name}`", f"`{column.path}`", column.stored.split("(")[0]) for name, column in COLUMNS.items()]
    return page("Records", table(("Column", "Place in the record", "SQL type"), rows))
