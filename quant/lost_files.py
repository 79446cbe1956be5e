"""Links to nothing and pointers of Git LFS in place of files."""

from pathlib import Path

from quant.errors import InputError

LFS = b"version https://git-lfs"  # first bytes of a pointer; https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md


def check_is_no_pointer(start: bytes, where: str) -> None:
    """start: first bytes of a file. raises InputError for a pointer of Git LFS"""
    if start.startswith(LFS):
        raise InputError(
            f"{where}: a pointer of Git LFS in place of the file; run `git lfs pull` there, or download the file again"
        )


def check_is_no_dead_link(path: Path) -> None:
    """raises InputError for a link to a file that is not there, as interrupted downloads leave it in the hub's cache"""
    if path.is_symlink() and not path.exists():
        raise InputError(f"{path}: a link to {path.readlink()}, which is not there; download the model again")
