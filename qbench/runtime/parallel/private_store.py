"""A store of torch.distributed that only processes of one user on one host reach: a file in a folder of that user.

The store that torchrun opens listens on every address, and takes and gives values without a check. Ranks of one host
use it for one word only, the name of the file; a wrong name ends the run and says nothing in the name of a rank.
"""

import os
import re
import secrets
import stat
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from quant.errors import InputError

NAME = re.compile("[0-9a-f]{32}")
KEY = "private-store"
STALE_S = 7 * 86400  # since the last word of a run that was killed, after which its file is removed


def open_private_store(public: Any, rank: int, num_ranks: int, timeout_s: float) -> Any:
    """A FileStore that all ranks of this host share.

    public   the store that torchrun opened
    raises   InputError if rank 0 gives no name of a file in time, or the folder belongs to somebody else
    """
    import torch.distributed as dist  # slow, and of no use to one rank

    folder = private_folder()
    if rank == 0:
        _remove_stale(folder)
        name = secrets.token_hex(16)
        os.close(os.open(folder / name, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        public.set(KEY, name)
    else:
        try:
            name = public.get(KEY).decode(errors="replace")
        except RuntimeError as error:
            raise InputError(
                f"rank 0 did not join within {timeout_s:g} s; start the same number of ranks on all hosts"
            ) from error
        if not NAME.fullmatch(name) or not (folder / name).is_file():
            raise InputError(f"rank 0 names no file in {folder}; is another program at the port of torchrun?")
    store = dist.FileStore(str(folder / name), num_ranks)  # pyright: ignore[reportPrivateImportUsage]  documented so
    store.set_timeout(timedelta(seconds=timeout_s))
    return store


def private_folder() -> Path:
    """The user's own folder below that of temporary files. raises InputError if it belongs to somebody else"""
    folder = Path(tempfile.gettempdir()) / f"qbench-ranks-{os.geteuid()}"
    folder.mkdir(0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise InputError(f"{folder} is not a folder of this user only; remove it, or set TMPDIR to another folder")
    return folder


def _remove_stale(folder: Path) -> None:
    for path in folder.iterdir():
        try:
            if time.time() - path.stat().st_mtime > STALE_S:
                path.unlink()
        except OSError:
            continue
