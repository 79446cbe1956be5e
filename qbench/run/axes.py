"""The axes of runs: `AXES` has a row for each, and `Setup` a field for each that a loaded model has.

Suites, rules, the command line, the functions of Python, the columns of records and of tables, and the documentation
read these rows. A new axis is a row here, a field of `Setup`, and the code that obeys it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from qbench.run.cache_spec import (
    DENSE,
    DYNAMIC,
    FULL,
    LAYOUTS,
    QUALITY_CHUNK,
    CacheSpec,
    check_layout,
    check_pattern,
    check_policy,
)
from qbench.run.choices import (
    ATTENTIONS,
    AUTO_ISA,
    CPU,
    DEVICES,
    FAST,
    ISAS,
    KERNEL,
    PLACEMENTS,
    PRECISIONS,
    TRITON,
    check_attention_name,
    check_compute,
    check_kv_format,
    check_limit,
)
from qbench.run.rank_layout import RankLayout
from qbench.run.work import QUESTIONS, check_question
from qbench.words.written import nearest, parse_bytes, written_bytes
from quant.errors import InputError
from quant.json_data import JsonRow

ALL = "all"  # threads: one for every core that this process may use; kv_ram: every token
NO_LIMIT = "none"


def check_known(kind: str, name: str, known: tuple[str, ...]) -> None:
    if name not in known:
        raise InputError(f"unknown {kind} {name!r}; known: {', '.join(known)}{nearest(name, known)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option of the command line, and a parameter of the functions of Python.

    name     as "--policy"; its parameter is the same word
    help     its help text
    group    section of the help that it is in
    field    of `RunOptions`, if that is not the name of the axis
    metavar  of its value
    choices  its values, if they are few
    """

    name: str
    help: str
    group: str
    field: str = ""
    metavar: str | None = None
    choices: tuple[str, ...] = ()

    @property
    def parameter(self) -> str:
        return self.name.removeprefix("--").replace("-", "_")


# Sections of the help of a command.
MODEL, KV_CACHE, MACHINE, RANKS = "Model", "KV cache", "Machine", "Ranks"


IN_TABLES, ON_PAGE, ASKED = "in tables", "on the page", "asked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """A column of tables for people.

    text     of the heading
    column   its name in the store, if that is not the name of the axis
    path     its place in a record, if that is not the one in the case
    digits   after the point of a number
    scale    of a number before it is written
    shown    IN_TABLES: in Markdown and on the page, if rows differ in the axis; ON_PAGE: there alone; ASKED: by name
    figures  columns that are shown with it
    """

    text: str
    column: str = ""
    path: str = ""
    digits: int = 0
    scale: float = 1.0
    shown: str = ON_PAGE
    figures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One axis.

    name       of the field of a case, in rules, with --only, and of the column in the store
    meaning    for readers of tables
    kind       of its values in suites and on the command line
    place      in a case; "speed.depth" is the field of a part
    key        in suites, of a list or one value; None: no axis of suites
    in_suites  meaning of the key
    least      of numbers
    words      in suites, for values that the machine knows
    check      raises InputError for a value of suites or the command line that cannot be
    read       value of a case from the one in a suite
    nothing    word for None, in rules
    write      word for another value, in rules
    of_speed   whether it changes speed and memory, and no token's logits
    compared   whether rows of one table may differ in it
    option     None: no command has one of this meaning
    heading    None: no column of tables
    """

    name: str
    meaning: str = ""
    kind: type = str
    place: str = ""
    key: str | None = None
    in_suites: str = ""
    least: int = 1
    words: tuple[str, ...] = ()
    check: Callable[[Any], Any] | None = None
    read: Callable[[Any], Any] | None = None
    nothing: str = "None"
    write: Callable[[Any], str] = str
    of_speed: bool = False
    compared: bool = False
    option: Option | None = None
    heading: Heading | None = None

    @property
    def part(self) -> str:
        """Field of a case whose value has it; empty if the case itself has it"""
        return self.place.rpartition(".")[0]

    @property
    def field(self) -> str:
        """Name of the field, in the case or in its part"""
        return self.place.rpartition(".")[2] or self.name

    @property
    def option_field(self) -> str:
        """Field of `RunOptions` that its option sets"""
        return (self.option.field if self.option else "") or self.name

    def value(self, case: Any) -> Any:
        """The value of a case; None if the part that has it is absent."""
        holder = getattr(case, self.part) if self.part else case
        return None if holder is None else getattr(holder, self.field)

    def text(self, case: Any) -> str:
        """The value in words, as rules and `--only` have it."""
        value = self.value(case)
        return self.nothing if value is None else self.write(value)

    def parsed(self, given: Any) -> Any:
        """The value of a case for one of a suite."""
        return given if self.read is None or given is None else self.read(given)


def read_limit(text: str) -> str | None:
    return None if text == NO_LIMIT else text


def read_kv_ram(text: str) -> int | None:
    return None if text == ALL else parse_bytes(text)


# In this order the grid of a suite turns: the last axis fastest, so that cases of one model, then of one artifact, are
# measured one after the other.
AXES = (
    Axis(
        name="model",
        key="models",
        in_suites="As above. The first axis turns slowest. Each axis takes a list or one value.",
        heading=Heading(text="model", shown=ASKED),
    ),
    Axis(
        name="recipe",
        compared=True,
        key="recipes",
        in_suites="As above.",
        option=Option(name="--recipe", group=MODEL, help="Quantize MODEL by this recipe while it loads."),
        heading=Heading(text="recipe", shown=ASKED),
    ),
    Axis(
        name="seed",
        compared=True,
        meaning="Seed of the calibration text: its windows, and documents that are generated.",
        kind=int,
        place="calibration.seed",
        key="seeds",
        in_suites="Seeds of the calibration text; every recipe is measured per seed. Default: `seed` of `calibration`.",
        least=0,
        heading=Heading(text="seed", shown=IN_TABLES),
    ),
    Axis(
        name="text",
        meaning="Text that is scored.",
        place="quality.text",
        key="texts",
        in_suites="Texts to score, as `text` of `eval`; every recipe is measured per text.",
        heading=Heading(text="text", shown=IN_TABLES),
    ),
    Axis(
        name="kv_format",
        compared=True,
        meaning="Format of the KV cache.",
        key="kv_formats",
        in_suites="KV formats. Default: the one of the recipe, or `f32`.",
        check=check_kv_format,
        option=Option(
            name="--kv",
            group=KV_CACHE,
            field="kv_format",
            metavar="FORMAT",
            help="KV format, for example kv-fp8  [default: the model's own, or f32]",
        ),
        heading=Heading(text="KV", shown=IN_TABLES),
    ),
    Axis(
        name="cache",
        compared=True,
        meaning="Layout of the KV cache.",
        key="caches",
        in_suites="Cache layouts: `dynamic`, `static`, `paged` or `none`. Default: `dynamic`.",
        check=check_layout,
        option=Option(name="--cache", group=KV_CACHE, help=f"Cache layout: {', '.join(LAYOUTS)}."),
        heading=Heading(text="cache", shown=IN_TABLES, figures=("kv_bytes_held",)),
    ),
    Axis(
        name="policy",
        compared=True,
        meaning="Tokens that the KV cache keeps, as in window:256.",
        key="policies",
        in_suites="Cache policies, for example `window:1024`. Default: `full`.",
        check=check_policy,
        option=Option(
            name="--policy",
            group=KV_CACHE,
            help="Cache policy, e.g. full, window:1024, sinks:4+1020, snapkv:budget=512; `qbench policies` lists them.",
        ),
        heading=Heading(text="policy", shown=IN_TABLES, figures=("kv_bytes_held",)),
    ),
    Axis(
        name="prefill_chunk",
        compared=True,
        meaning="Tokens of a prompt per forward pass, at most.",
        kind=int,
        key="prefill_chunks",
        in_suites="Largest number of prompt tokens per forward pass. Default: the whole prompt.",
        option=Option(
            name="--prefill-chunk",
            group=KV_CACHE,
            help="Tokens of a prompt per forward pass, at most; a policy that evicts does so after each  "
            f"[default: all; {QUALITY_CHUNK} for quality and tasks under a policy that evicts]",
        ),
        heading=Heading(text="prefill chunk"),
    ),
    Axis(
        name="attention",
        compared=True,
        meaning="Code that computes attention, if one was chosen.",
        key="attention",
        in_suites=f"Attention code: `{'`, `'.join(ATTENTIONS[:-1])}` or `{ATTENTIONS[-1]}`. Default: the best for the "
        "model.",
        check=check_attention_name,
        option=Option(
            name="--attention",
            group=KV_CACHE,
            help=f"Code that computes attention: textbook, sdpa, {KERNEL}, on a device {TRITON}  [default: {KERNEL}, "
            f"or torch if {KERNEL} cannot compute the scores; {TRITON} on a device]",
        ),
        heading=Heading(text="attention"),
    ),
    Axis(
        name="prefill",
        compared=True,
        meaning="Blocks of the attention matrix that a prefill computes.",
        key="prefill",
        in_suites="Prefill patterns, for example `star:25%`. Default: `dense`.",
        check=check_pattern,
        option=Option(
            name="--prefill",
            group=KV_CACHE,
            help="Prefill pattern, e.g. dense, star:25%, flexprefill:gamma=0.9; `qbench patterns` lists them.",
        ),
        heading=Heading(text="prefill", shown=IN_TABLES, figures=("prefill_blocks", "prefill_mass")),
    ),
    Axis(
        name="kv_ram",
        compared=True,
        meaning="Memory of the KV cache; the rest is on a disk.",
        key="kv_ram",
        in_suites="Memory of the KV cache, for example `2MiB`; the rest is on a disk. Default: `all`.",
        read=read_kv_ram,
        nothing=ALL,
        write=written_bytes,
        option=Option(
            name="--kv-ram",
            group=KV_CACHE,
            help="Memory of the KV cache, e.g. 2GiB, or 25% of it; the rest goes to a file in the folder of temporary "
            "files  [default: all in memory]",
        ),
        heading=Heading(text="KV RAM MB", digits=2, scale=1e-6, figures=("kv_bytes_read", "kv_hit_share")),
    ),
    Axis(
        name="kv_disk",
        option=Option(name="--kv-disk", group=KV_CACHE, help="Largest size of the file of --kv-ram  [default: 10GiB]"),
    ),
    Axis(
        name="question",
        meaning="When a policy sees the question of a task (`--question`).",
        place="tasks.question",
        key="question",
        in_suites=f"For tasks under a policy: `{'`, `'.join(QUESTIONS[:-1])}` or `{QUESTIONS[-1]}`.",
        check=check_question,
        heading=Heading(text="question"),
    ),
    Axis(
        name="compute",
        meaning="Precision of the matmuls.",
        key="compute",
        in_suites="Precision of matmuls: `fast`, `exact` or `float32`. Default: `fast`.",
        check=check_compute,
        option=Option(
            name="--compute",
            group=MACHINE,
            choices=PRECISIONS,
            help="Precision of matmuls. fast: rounds weights, keys and values again for many tokens; "
            "exact: as stored; float32: inputs as float32 too",
        ),
        heading=Heading(text="compute"),
    ),
    Axis(
        name="isa",
        key="isa",
        in_suites="Instruction sets, for example `avx2`. Default: the best of the machine.",
        check=lambda name: check_known("isa", name, (AUTO_ISA, *ISAS)),
        heading=Heading(text="ISA", path="metrics.isa", shown=ASKED),
    ),
    Axis(
        name="device",
        key="device",
        in_suites="`cpu` or `cuda`. Default: `cpu`.",
        check=lambda name: check_known("device", name, DEVICES),
        option=Option(
            name="--device",
            group=MACHINE,
            choices=DEVICES,
            help="Device that runs the model; interpreter: CUDA kernels on the CPU, for tests",
        ),
        heading=Heading(text="device", shown=ASKED),
    ),
    Axis(
        name="division",
        compared=True,
        meaning="Division of the model among ranks.",
        key="divisions",
        in_suites="Divisions of the model among ranks: `tp`, `gather`, `pp`, `ep` or `sp`, over all ranks that "
        "`torchrun` started. Default: one rank.",
        check=RankLayout.of,
        option=Option(
            name="--ranks",
            group=RANKS,
            metavar="tp=N,...",
            help="Divide the model among processes, which torchrun starts. tp=N: lanes with a part of every layer; "
            "ep=N: with some routed experts; sp=N: with the KV cache of some tokens; pp=N: stages of some layers each. "
            "cut=gather: the bits of one rank; micro-batches=N: parts of each forward pass that stages compute in "
            "turns; dispatch=all-to-all: lanes send tokens to experts; link=shm or gloo; timeout=SECONDS: longest wait "
            "for a rank; ray=HOST:PORT, auto or local: Ray starts the ranks, restarts=N times again after a loss.",
        ),
        heading=Heading(text="division"),
    ),
    Axis(
        name="memory",
        compared=True,
        meaning="Memory limit of the process, as the suite names it.",
        key="memory",
        in_suites="Memory limits of the process, for example `2GiB`, `40%` of the bytes of the weights, or `none`. "
        "Default: `none`.",
        check=lambda text: text == NO_LIMIT or check_limit(text),
        read=read_limit,
        nothing=NO_LIMIT,
        of_speed=True,
        option=Option(
            name="--memory",
            group=MACHINE,
            field="memory_bytes",
            help="Memory limit of the process, e.g. 2GiB, or 140% of the weights' bytes; weights that do not fit are "
            "read from disk in each forward pass.",
        ),
        heading=Heading(text="memory", shown=ASKED),
    ),
    Axis(
        name="expert_placement",
        option=Option(
            name="--expert-placement",
            group=MACHINE,
            choices=PLACEMENTS,
            help="Experts that stay in memory under --memory: those used last, the same number in each layer, "
            "those used most, or those of the first or last layers.",
        ),
    ),
    Axis(
        name="threads",
        kind=int,
        key="threads",
        in_suites="Numbers of threads, or `all`. Default: every core that the process may use.",
        words=(ALL,),
        of_speed=True,
        option=Option(name="--threads", group=MACHINE, help="Number of threads  [default: all cores]"),
        heading=Heading(text="threads"),
    ),
    Axis(
        name="batch",
        kind=int,
        key="batches",
        in_suites="Sequences at once. Default: 1.",
        of_speed=True,
        heading=Heading(text="batch"),
    ),
    Axis(
        name="context",
        meaning="Tokens in the cache before a timed speed.",
        kind=int,
        place="speed.depth",
        key="contexts",
        in_suites="Tokens in the cache before the timed phases. Default: `depth` of `bench`.",
        least=0,
        of_speed=True,
        heading=Heading(text="depth", column="depth"),
    ),
)
AXIS: Mapping[str, Axis] = {axis.name: axis for axis in AXES}
SUITE_AXES = tuple(axis for axis in AXES if axis.key is not None)
NAMES = tuple(axis.name for axis in SUITE_AXES)


@dataclass(frozen=True, slots=True)
class Setup(JsonRow):
    """How a model runs: the fields that a case and `RunOptions` have in common.

    recipe     quantize the model by this recipe; None: as it is stored
    kv_format  format of the KV cache; None: the model's own
    cache      layout of the KV cache, one of `cache_spec.LAYOUTS`
    policy     tokens that the KV cache keeps, as `qbench.policies` names it
    prefill_chunk  tokens of a prompt that pass at once, at most; None: as many as the cache takes
    attention  the code that computes attention, one of `choices.ATTENTIONS`; None: the best that the model can have
    prefill    blocks of the attention matrix that a prefill computes, as `qbench.prefill` names it
    kv_ram     bytes of memory for keys and values, which spill to a disk beyond it; a float is a share of those of the
               whole cache; None: all stay in memory
    kv_disk    bytes of that disk; None: 10 GiB
    compute    precision of the matmuls, one of `choices.PRECISIONS`
    device     where the model runs, one of `choices.DEVICES`
    threads    of torch and the kernels; None: every core
    division   among ranks, as `RankLayout.of` reads it; None: one rank
    """

    # Left out unless they are asked for: rows of older code keep their keys, and older code reads the options.
    json_omits: ClassVar[tuple[str, ...]] = (
        *("cache", "policy", "prefill_chunk", "attention", "prefill", "kv_ram", "kv_disk", "compute", "division"),
    )

    recipe: str | None = None
    kv_format: str | None = None
    cache: str = DYNAMIC
    policy: str = FULL
    prefill_chunk: int | None = None
    attention: str | None = None
    prefill: str = DENSE
    kv_ram: int | float | None = None
    kv_disk: int | None = None
    compute: str = FAST
    device: str = CPU
    threads: int | None = None
    division: str | None = None

    @property
    def cache_spec(self) -> CacheSpec:
        """raises InputError for a layout and a policy that do not go together"""
        return CacheSpec(self.cache, self.policy, self.prefill_chunk, self.prefill, self.kv_ram, self.kv_disk)

    @property
    def layout(self) -> RankLayout:
        """raises InputError for a division that is not known"""
        return RankLayout() if self.division is None else RankLayout.of(self.division)
