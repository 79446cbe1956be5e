"""The `qbench` command: commands load when they are called, and errors end in one line."""

import atexit
import gc
import importlib
import logging
import os
import sys
from collections.abc import Sequence
from functools import cache, partial
from importlib.util import find_spec
from io import TextIOWrapper

import click
from click.shell_completion import CompletionItem

from qbench.cli.annex import ANNEX, Launch, OtherCommands, Table, find_launch, merged, other_commands
from qbench.cli.renamed import check_variables, new_option
from qbench.measure.host.commit import code_version
from qbench.measure.host.conditions import CPU, ISA, LINEAR_PATH, SWITCHES, TILES_ONLY
from qbench.version import __version__
from qbench.words.read import printable
from qbench.words.written import nearest
from quant.errors import InputError

# In the order of a newcomer's path.
CORE: Table = {
    "Discover": {
        "info": "This machine: processor, kernels, bandwidth and peaks",
        "models": "Models that need no file",
        "recipes": "Named recipes: bits, method, calibration, and the programs that load them",
        "policies": "KV-cache policies and their options",
        "patterns": "Prefill patterns and their options",
    },
    "Make and check a model": {
        "quantize": "Quantize a model by a recipe",
        "inspect": "Contents of a model file, tensor by tensor",
        "doctor": "Damage in a quantized model",
        "verify": "Check a quantized model against its manifest",
    },
    "Measure": {
        "eval": "Quality: perplexity, and KL divergence from a reference",
        "bench": "Speed and memory: prefill and decode",
        "race": "Speeds of several models, caches or programs in turn, and their ratios",
        "breakdown": "Time of a decode step, part by part",
        "sweep": "Quantize, evaluate and bench a suite of recipes",
    },
    "Choose": {
        "plan": "Memory by part, predicted before anything is written",
        "recommend": "Which recipe and KV format to run within given memory and speed",
    },
    "Read results": {
        "report": "Tables, pages and pictures of records",
        "compare": "Changes from A to B, with intervals and verdicts",
        "query": "SQL over all records",
        "gate": "Fail in CI if a change made anything worse",
    },
    "Run": {
        "generate": "Text from a model",
        "serve": "The OpenAI-compatible HTTP API, for any client",
        "engine": "Throughput of many requests at once",
    },
}
LAST: Table = {
    "Shell": {
        "completion": "Completion of commands and options for bash, zsh or fish",
    },
}
# Each command of these is in qbench.cli.<command>.
GROUPS = merged(CORE, ANNEX, LAST)
COMMANDS = {name: use for commands in GROUPS.values() for name, use in commands.items()}

FEATURES = {"serve": "fastapi", "ray": "ray", "triton": "triton"}  # extra -> the package that it needs
FORCED_OP = "linear_q8_0"  # any op: all obey QBENCH_ISA


def end_without_search() -> None:
    """Keep Python from its search for garbage among all objects at the end of the program.

    With torch loaded it takes most of a second of a processor, and on a busy machine ten seconds of the clock, in which
    a server that has stopped is still there. Triton prints a list of every object that the search would have freed.
    """
    if "triton" not in sys.modules:
        gc.freeze()


atexit.register(end_without_search)


@cache
def others() -> OtherCommands:
    return other_commands(COMMANDS)


def all_groups() -> dict[str, dict[str, str]]:
    """GROUPS with the commands of other packages."""
    return merged(CORE, ANNEX, others().table, LAST)


class LazyGroup(click.Group):
    """Imports a command's module on first use, so that `qbench --help` does not import torch."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for commands in all_groups().values() for name in commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return others().load(cmd_name)
        return importlib.import_module(f"qbench.cli.{cmd_name}").command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        warn_of_refused()
        widest = max(map(len, self.list_commands(ctx)))  # one column of uses for all groups
        for title, commands in all_groups().items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:<{widest}}", use) for name, use in commands.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands with their uses, without an import of any, and options."""
        uses = [row for commands in all_groups().values() for row in commands.items() if row[0].startswith(incomplete)]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*(CompletionItem(name, help=use) for name, use in uses), *options]

    def resolve_command(self, ctx: click.Context, args: list[str]):
        if args and args[0] not in COMMANDS:
            warn_of_refused()
            if args[0] not in others().modules:
                known = self.list_commands(ctx)
                hint = "; `qbench --help` has a line about each" if args[0] == "help" else nearest(args[0], known)
                raise click.UsageError(f"no command {args[0]!r}{hint}; commands are {', '.join(known)}")
        return super().resolve_command(ctx, args)


def warn_of_refused() -> None:
    for line in others().refused:
        click.echo(f"warning: {line}", err=True)


def print_version(ctx: click.Context, _option: click.Parameter, is_asked: bool) -> None:
    """Print the version with the commit, the best instruction set and the optional features that are installed."""
    if not is_asked:
        return
    import cpu_kernels

    version = code_version()
    commit = (
        f"commit {version.commit[:10]}{' with changes' if version.dirty else ''}" if version.commit else "no commit"
    )
    features = [name for name, module in FEATURES.items() if find_spec(module) is not None]
    isa = cpu_kernels.chosen_isa(FORCED_OP)
    click.echo(f"qbench {__version__}, {commit}, kernels {isa}, features: {', '.join(features) or 'base'}")
    ctx.exit()


@click.group(cls=LazyGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=print_version,
    help="Version, commit and features.",
)
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Which quantization should I run on this machine, and what does it cost me?"""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Exit status: 0 ok, 1 gate red, 2 bad input or a machine that cannot, 70 a bug of ours.

    Only these exceptions mean bad input: InputError, an OSError of the files that were named, and a
    NotImplementedError that lists the alternatives. Any other ValueError or RuntimeError is a mistake in the code.
    """
    if not os.environ.get("QBENCH_DEBUG"):
        os.environ["RUST_BACKTRACE"] = "0"  # a panic of the tokenizers library is an error of ours, in one line
    replace_unknown_characters()
    launch = find_launch()
    fail = partial(_fail, launch)
    try:
        check_variables()
        check_switches()
        launch.check(sys.argv[1:] if argv is None else list(argv))
        check_forced_isa()
        show_warnings(launch)
        color = False if os.environ.get("NO_COLOR") else None  # https://no-color.org; None: on terminals alone
        status = cli.main(args=argv, prog_name="qbench", standalone_mode=False, color=color) or 0
        launch.end()
        return status
    except click.NoSuchOption as error:
        return fail(new_option(error) or error.format_message(), 2)
    except click.ClickException as error:
        return fail(plain_types(error.format_message()), 2)
    except (click.Abort, KeyboardInterrupt):
        return fail("interrupted", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (InputError, OSError, NotImplementedError) as error:
        return fail(str(error), 2)
    except MemoryError:
        return fail("out of memory; choose a smaller model, recipe or context", 2)
    except Exception as error:
        return fail(f"internal error, {type(error).__name__}: {error} (QBENCH_DEBUG=1 shows where)", 70)


def replace_unknown_characters() -> None:
    """A question mark for each character that the locale of stdout lacks, as ISO-8859-1 lacks most."""
    if isinstance(sys.stdout, TextIOWrapper) and "utf" not in sys.stdout.encoding.lower():
        sys.stdout.reconfigure(errors="replace")


def plain_types(message: str) -> str:
    """Click's message about a value, with the word for the value in place of the name of its range type."""
    return message.replace("valid integer range.", "valid integer.").replace("valid float range.", "valid number.")


def check_switches() -> None:
    """raises InputError for an unknown value of one of SWITCHES, before a kernel trips over it"""
    for name, values in SWITCHES.items():
        value = os.environ.get(name)
        if value and value not in values:
            *others, last = values
            raise InputError(f"{name}={value}: expected {', '.join(others)} or {last}")


def check_forced_isa() -> None:
    """Check QBENCH_CPU, QBENCH_ISA and a path of AMX alone before a kernel reads them.

    raises   InputError for an unknown name, and for a QBENCH_ISA that this machine, or the pretended one, lacks
    """
    needs_tiles = os.environ.get(LINEAR_PATH) == TILES_ONLY
    if not (os.environ.get(ISA) or os.environ.get(CPU) or needs_tiles):
        return
    import cpu_kernels

    try:
        best = cpu_kernels.chosen_isa(FORCED_OP)
    except RuntimeError as error:
        raise InputError(str(error)) from error
    if needs_tiles and best != "amx":
        raise InputError(f"{LINEAR_PATH}={TILES_ONLY} needs amx; this run has {best}")


def _fail(launch: Launch, message: str, status: int) -> int:
    if os.environ.get("QBENCH_DEBUG") and sys.exc_info()[0]:
        raise
    return launch.fail(printable(" ".join(message.split())), status)


class WarningLines(logging.Handler):
    """A line on stderr for each message, once per command, and only from a process that prints."""

    def __init__(self, launch: Launch) -> None:
        super().__init__(logging.WARNING)
        self.launch = launch
        self._said: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        line = printable(" ".join(record.getMessage().split()))
        if line not in self._said and not self.launch.is_silent:
            self._said.add(line)
            print(f"warning: {line}", file=sys.stderr)


def show_warnings(launch: Launch) -> None:
    """Print `quant`'s warnings from here on; a new command repeats the warnings of the command before it."""
    logger = logging.getLogger("quant")
    for handler in [handler for handler in logger.handlers if isinstance(handler, WarningLines)]:
        logger.removeHandler(handler)
    logger.addHandler(WarningLines(launch))


if __name__ == "__main__":
    sys.exit(main())
