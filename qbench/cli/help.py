"""Help of a command: its options in sections that fit a screen, and two commands to begin with."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

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


class Command(click.Command):
    """A command whose help has sections and examples.

    sections  title -> options of this command only; these sections come first
    examples  command lines to begin with, of files and folders that the examples of other commands write
    """

    def __init__(
        self,
        *args: Any,
        sections: Mapping[str, Sequence[str]] = MappingProxyType({}),
        examples: Sequence[str] = (),
        **others: Any,
    ) -> None:
        super().__init__(*args, **others)
        self.sections, self.examples = sections, examples

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, options in self.options(ctx).items():
            with formatter.section(title):
                formatter.write_dl([record for one in options if (record := one.get_help_record(ctx)) is not None])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:
                    formatter.write(f"{'':>{formatter.current_indent}}{line}\n")

    def options(self, ctx: click.Context) -> dict[str, list[click.Option]]:
        """Title -> options: the command's sections, OTHERS, and shared ones; OTHERS is last if it is only --help."""
        title_of = {name: title for part in (SHARED, self.sections) for title, names in part.items() for name in names}
        titles = [*(title for title in self.sections if title not in SHARED), OTHERS, *SHARED]
        found: dict[str, list[click.Option]] = {title: [] for title in titles}
        for option in self.get_params(ctx):
            if isinstance(option, click.Option):
                found[title_of.get(long_name(option), OTHERS)].append(option)
        if [option.name for option in found[OTHERS]] == ["help"]:
            found[OTHERS] = found.pop(OTHERS)  # at the end
        return {title: options for title, options in found.items() if options}


def long_name(option: click.Option) -> str:
    """`prefill_chunk` of an option --prefill-chunk."""
    return max(option.opts, key=len).lstrip("-").replace("-", "_")
