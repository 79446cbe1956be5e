"""Help of a command: its options in sections that fit a screen, and two commands to begin with."""

from collections.abc import Mapping, Sequence

import click

from qbench.run.axes import AXES, KV_CACHE, MACHINE, RANKS

OTHERS = "Options"  # of a command that has few
MOST_OF_A_SECTION = 10


def of_group(group: str) -> tuple[str, ...]:
    """Options of the axes of a group."""
    return tuple(axis.option.parameter for axis in AXES if axis.option is not None and axis.option.group == group)


# Section -> options, of every command that has them.
SHARED: Mapping[str, Sequence[str]] = {
    KV_CACHE: (*of_group(KV_CACHE), "kv_memory"),
    MACHINE: (*of_group(MACHINE), "cpu_time"),
    RANKS: of_group(RANKS),
    "Output": ("output", "keep", "json"),
}
CALIBRATION = (
    *("calibration", "samples", "seq_len", "seed", "calibrate_on"),
    *("min_expert_tokens", "calibrate_in", "stats", "imatrix", "export_imatrix"),
)
# Command -> its own sections, which come first.
OWN: Mapping[str, Mapping[str, Sequence[str]]] = {
    "quantize": {
        "Calibration": CALIBRATION,
        "Output": ("output", "max_shard_size", "best", "resume", "dry_run", "json"),
    },
    "search": {
        "Search": ("target", "text", "windows", "exhaustive", "ablation"),
        "KV cache in the size": ("ctx", "kv", "policy", "batch"),
        "Calibration": CALIBRATION,
    },
    "eval": {
        "Text": ("protocol", "text", "documents", "windows", "logits", "save_logits", "kld_reference"),
        "Tasks": ("tasks", "limit", "num_fewshot", "include_path", "metadata", "question", "answers"),
    },
    "bench": {
        "Model": ("recipe",),
        "Speed": ("pp", "tg", "depth", "batch", "repetitions", "precision", "budget"),
    },
    "race": {
        "Rivals": ("recipe", "cache", "policy", "vs", "launches", "pause"),
        "Speed": ("pp", "tg", "depth", "batch", "repetitions", "precision", "budget"),
    },
    "breakdown": {"Model": ("recipe",), "Speed": ("tg", "depth")},
    "plan": {"Case": ("ctx", "batch", "goal", "cluster", "disk", "measure")},
    "recommend": {"Goal": ("memory", "tps", "ctx", "batch"), "Quality": ("text", "windows", "exhaustive")},
    "report": {
        "Form": ("format", "html", "svg", "into", "marker", "columns"),
        "Table": ("cache_table", "policies", "mixes", "interaction", "attention_table"),
    },
    "compare": {
        "Records": ("baseline", "long", "noise_floor"),
        "Models": ("reference", "text", "windows", "protocol", "tasks", "limit", "recipes", "divisions"),
    },
    "gate": {"Comparison": ("suite", "baseline", "skip", "see", "budget", "any_machine", "ranks")},
    "generate": {
        "Text": ("prompt", "max_new_tokens", "stop", "logprobs"),
        "Sampling": ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed"),
    },
    "serve": {
        "Requests": ("max_batch", "max_queue", "no_prefix_caching", "preempt", "swap_memory", "swap_disk"),
        "Access": ("host", "port", "api_key", "allowed_host", "allowed_origin", "request_timeout"),
        "KV cache": ("kv_memory", "kv", "policy", "prefill_chunk", "prefill", "kv_store", "kv_store_size"),
    },
    "engine": {
        "Requests": ("requests", "prompt", "new", "document", "batch", "chunk"),
        "Measurement": ("rounds", "seed", "vs", "instances"),
        "KV cache": ("kv_memory", "kv", "policy", "prefill_chunk", "prefill", "kv_store", "kv_store_size"),
    },
    "breakeven": {"Question": ("what", "list", "only", "at", "layers", "rounds")},
    "mla": {"Case": ("ctx", "batch", "tokens", "mode", "rounds", "fit")},
    "sweep": {"Cases": ("only", "shuffle", "limit", "resume", "launches", "dry_run")},
}
# Command -> command lines to begin with, of files and folders that others of these lines write.
EXAMPLES: Mapping[str, Sequence[str]] = {
    "info": ("qbench info", "qbench info --no-measure --all"),
    "models": ("qbench models", "qbench models ref:llama --skills"),
    "recipes": ("qbench recipes", "qbench recipes --bits 4 --container gguf"),
    "policies": ("qbench policies", "qbench policies --json"),
    "patterns": ("qbench patterns", "qbench patterns --json"),
    "quantize": (
        "qbench quantize ref:llama --recipe q4_k_m -o model.gguf",
        "qbench quantize ref:llama --recipe q4_k_m --dry-run",
    ),
    "search": (
        "qbench search ref:llama --target 4.5bpw -o best.gguf",
        "qbench search ref:llama --target 2.5MB --context 1024 --kv auto -o small.gguf",
    ),
    "inspect": ("qbench inspect ref:llama", "qbench inspect model.gguf --json"),
    "doctor": ("qbench doctor model.gguf", "qbench doctor model.gguf --source ref:llama"),
    "verify": ("qbench verify model.gguf", "qbench verify model.gguf --source ref:llama"),
    "eval": (
        "qbench eval ref:llama --recipe q4_k_m --reference ref:llama",
        "qbench eval model.gguf --protocol llama.cpp-512 --text wiki.test.raw",
    ),
    "bench": (
        "qbench bench ref:llama --recipe q4_0 -p 256 -n 64",
        "qbench bench model.gguf --kv kv-f16 -d 0,512 -b 1,8",
    ),
    "race": (
        "qbench race ref:llama --recipe q4_0 --recipe q8_0 -p 256 -n 64",
        "qbench race model.gguf --kv kv-f16 --policy full,sinks:4+252 -d 512",
    ),
    "breakdown": (
        "qbench breakdown ref:llama --recipe q4_0 -n 64",
        "qbench breakdown model.gguf --cpu-time --threads 1",
    ),
    "sweep": ("qbench sweep quickstart --dry-run", "qbench sweep quickstart -o runs/quickstart"),
    "plan": (
        "qbench plan shape:llama-3.1-8b --recipe q4_k_m --context 8192",
        "qbench plan ref:llama --kv kv-int8 --context 512 --json",
    ),
    "recommend": (
        "qbench recommend ref:llama --memory 300MiB",
        "qbench recommend ref:llama --memory 300MiB --tps 100 --context 512",
    ),
    "report": ("qbench report runs/quickstart", "qbench report runs/quickstart --html page.html"),
    "compare": ("qbench compare ref:llama model.gguf", "qbench compare runs/quickstart --baseline q4_0"),
    "query": (
        "qbench query --schema",
        "qbench query 'select recipe, perplexity from quality' --records runs/quickstart",
    ),
    "gate": (
        "qbench gate --suite quickstart --save runs/baseline",
        "qbench gate --suite quickstart --baseline runs/baseline",
    ),
    "generate": (
        "qbench generate ref:llama 'The sun' -n 32",
        "qbench generate model.gguf 'The sun' --temperature 0.8 --seed 1",
    ),
    "serve": ("qbench serve model.gguf", "qbench serve model.gguf --port 8080 --kv kv-fp8 --max-batch 8"),
    "engine": ("qbench engine ref:llama --requests 16", "qbench engine ref:llama --requests 16 --document 128"),
    "breakeven": ("qbench breakeven --list", "qbench breakeven ref:llama --what prefill"),
    "mla": ("qbench mla --context 1024", "qbench mla --context 1024 --cpu-time --threads 1"),
    "kernels": ("qbench kernels --only q4_k --m 1,512", "qbench kernels --suite kernels"),
    "tune": ("qbench tune", "qbench tune --show"),
    "selftest": ("qbench selftest", "qbench selftest --only linear_q4_k --verbose"),
    "completion": ("qbench completion bash", "qbench completion zsh"),
}


class Command(click.Command):
    """A command whose help has sections and examples."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, options in sections(self, ctx).items():
            with formatter.section(title):
                formatter.write_dl([record for one in options if (record := one.get_help_record(ctx)) is not None])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Examples"):
            for line in EXAMPLES[self.name or ""]:
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


def sections(command: click.Command, ctx: click.Context) -> dict[str, list[click.Option]]:
    """Title -> options: the command's own sections, OTHERS, and shared ones; OTHERS is last if it is only --help."""
    own = OWN.get(command.name or "", {})
    title_of = {name: title for part in (SHARED, own) for title, names in part.items() for name in names}
    titles = [*(title for title in own if title not in SHARED), OTHERS, *SHARED]
    found: dict[str, list[click.Option]] = {title: [] for title in titles}
    for option in command.get_params(ctx):
        if isinstance(option, click.Option):
            found[title_of.get(long_name(option), OTHERS)].append(option)
    if [option.name for option in found[OTHERS]] == ["help"]:
        found[OTHERS] = found.pop(OTHERS)  # at the end
    return {title: options for title, options in found.items() if options}


def long_name(option: click.Option) -> str:
    """`prefill_chunk` of an option --prefill-chunk."""
    return max(option.opts, key=len).lstrip("-").replace("-", "_")
