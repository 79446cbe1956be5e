"""`--keep PATH`: where records are appended, refused at once if the code that measures is no commit."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from qbench.measure.host.commit import code_version
from qbench.measure.records.record import read_files
from quant.errors import InputError


class KeepPath(click.Path):
    """A file or folder of records. A row names a commit, so the tree must be that commit."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = super().convert(value, param, ctx)
        require_clean_tree(Path(str(path)))
        return path


def require_clean_tree(path: Path) -> None:
    """raises InputError if the checkout has changes; code outside a checkout has a hash alone and passes"""
    code = code_version()
    if code.dirty:
        raise InputError(
            f"{path}: no record is kept of a tree with changes to commit {(code.commit or '')[:10]}; "
            "commit them (`git status` lists them), or measure without --keep"
        )


def require_clean_rows(paths: Sequence[str | Path]) -> None:
    """raises InputError if a measured row comes from a tree with changes"""
    measured = [record for record in read_files(paths) if record.is_ok]
    changed = sum(bool(record.dirty) for record in measured)
    if changed:
        raise InputError(
            f"{', '.join(map(str, paths))}: {changed} of {len(measured)} rows were measured by a tree with changes, so "
            "that no commit names their code; commit the changes and measure these rows again"
        )
