"""`DiskStore`: blocks as files of a folder that several processes may share.

    FOLDER/qbench-kv<FORMAT>-<identity>/identity.json      the facts that its blocks share
    FOLDER/qbench-kv<FORMAT>-<identity>/<root>/<depth>-<digest>     one block each

Only the owner may list the folders: names of blocks are digests of tokens, which would confirm a guessed prompt.

Names are hexadecimal. The blocks of other identities are never read, and are evicted like ours.
"""

import errno
import logging
import os
import secrets
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from qbench.runtime.tiers.aligned import BUFFERED, DIRECT, aligned_buffer, padded, read_whole
from qbench.runtime.tiers.block_file import FORMAT, file_bytes, pack_header, unpack, write_file
from qbench.runtime.tiers.block_store import BlockKey, BlockNote, BlockStore, BlockStoreCounts, CorruptBlock
from qbench.runtime.tiers.store_identity import StoreIdentity
from quant.errors import InputError
from quant.regular_file import read_regular_text

SPACE_PREFIX = "qbench-kv"
IDENTITY = "identity.json"
MOST_IDENTITY_BYTES = 1 << 16
HIDDEN = "."  # names of files that are being written, and of folders that are being deleted, begin with it
STALE_S = 600  # a file takes milliseconds to write; one that is older was left by a process that ended

# File systems date files by a clock of their own, which may be ahead of the process's by a few milliseconds; servers of
# network file systems by more.
CLOCK_STEP_NS = 60 * 10**9

# Blocks are evicted down to this share of the limit. A process looks at the folder again after it has written this
# share of the limit, since others write, too: with two processes, 0.9 + 2 * 0.05 = 1.
FULL_SHARE, SCAN_SHARE = 0.9, 0.05
_WARNED: set[str] = set()  # a process may open the same folder several times
PRIVATE = 0o700
RETRY_S = 60.0  # until a disk that has refused a write is asked again


class DiskStore(BlockStore):
    """max_bytes  of all files in the folder, those of other identities among them; least recently used ones go first
    read_mode  one of `aligned.READ_MODES`
    raises     InputError for a folder that is a file, and for a limit that holds no block
    """

    def __init__(self, folder: Path, identity: StoreIdentity, max_bytes: int, *, read_mode: str = DIRECT) -> None:
        self.folder, self.identity, self.max_bytes, self.read_mode = folder, identity, max_bytes, read_mode
        self.block_bytes, self.file_bytes = identity.block_bytes, file_bytes(identity.block_bytes)
        self.counts = BlockStoreCounts()
        self._space = identity.space
        self._name = f"{SPACE_PREFIX}{FORMAT}-{self._space.hex()}"
        self._lock = threading.Lock()
        self._local = threading.local()
        self._token, self._num_files = secrets.token_hex(6), 0
        self._total = self._since_scan = 0
        self._retry_at, self._has_warned = -RETRY_S, False
        self._hidden: set[bytes] = set()  # roots whose files could not be deleted
        if folder.exists() and not folder.is_dir():
            raise InputError(f"{folder} is a file, expected a folder for blocks of keys and values")
        if FULL_SHARE * max_bytes < self.file_bytes:
            least = int(self.file_bytes / FULL_SHARE) + 1
            raise InputError(f"{max_bytes} bytes of disk hold no block of {self.file_bytes}; give at least {least}")
        self._open()

    def has(self, key: BlockKey) -> bool:
        return key.root not in self._hidden and os.path.exists(self.path_of(key))

    def get(self, key: BlockKey, out: np.ndarray) -> BlockNote | None:
        path = self.path_of(key)
        if key.root in self._hidden:
            return None
        try:
            file = self._read(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._refused("read", error)
            return None
        try:
            note, data = unpack(self._space, key, file, self.block_bytes)
        except CorruptBlock:
            with self._lock:
                self.counts.corrupt_blocks += 1
            _unlink(path)
            raise
        out[:] = data
        return note

    def put(self, key: BlockKey, data: np.ndarray, note: BlockNote) -> bool:
        path = self.path_of(key)
        with self._lock:
            if time.monotonic() < self._retry_at:
                return False
            if os.path.exists(path):
                return True
            try:
                self._make_room()
                self._write(path, pack_header(self._space, key, data, note), data)
            except OSError as error:
                self._retry_at = time.monotonic() + RETRY_S
                self._refused("write", error)
                return False
            self._hidden.discard(key.root)
            self._total += self.file_bytes
            self._since_scan += self.file_bytes
            self.counts.written_bytes += self.file_bytes
            self.counts.written_blocks += 1
        return True

    def touch(self, keys: Sequence[BlockKey]) -> None:
        for key in reversed(keys):  # a block is then never older than those that follow it in its chain
            try:
                os.utime(self.path_of(key))
            except OSError:
                continue

    def delete(self, root: bytes) -> None:
        with self._lock:
            self._num_files += 1
            gone = self.folder / self._name / f"{HIDDEN}deleted-{self._token}-{self._num_files}"
            try:
                os.rename(self.folder / self._name / root.hex(), gone)
            except FileNotFoundError:
                return
            except OSError as error:
                self._hidden.add(root)
                self._refused("delete", error)
                return
        shutil.rmtree(gone, ignore_errors=True)
        with self._lock:
            self._total = sum(size for _, _, size, _ in self._files())

    def path_of(self, key: BlockKey) -> str:
        return f"{self.folder}/{self._name}/{key.root.hex()}/{key.depth:06x}-{key.digest.hex()}"

    def _open(self) -> None:
        own = self.folder / self._name
        try:
            self.folder.mkdir(PRIVATE, parents=True, exist_ok=True)
            own.mkdir(PRIVATE, exist_ok=True)
            if own.stat().st_uid == os.geteuid():
                own.chmod(PRIVATE)  # an older version left it open to others
            if not (own / IDENTITY).exists():
                temporary = own / f"{HIDDEN}{self._token}"
                temporary.write_text(self.identity.to_text(), encoding="utf-8")
                os.rename(temporary, own / IDENTITY)
        except OSError as error:
            self._retry_at = time.monotonic() + RETRY_S
            self._refused("write", error)
        self._remove_stale()
        self._total = sum(size for _, _, size, _ in self._files())
        others = sorted(name for name in self._differences())
        if others:
            _warn_once(
                f"{self.folder} also holds blocks that differ in {'; '.join(others)}; they are not read, and evicted "
                "first when they are oldest"
            )

    def _differences(self) -> Iterator[str]:
        """Differences to the other identities of the folder, each once."""
        seen = set()
        for space in self._spaces():
            if space.name != self._name:
                try:
                    differ = self.identity.differences(read_regular_text(space / IDENTITY, MOST_IDENTITY_BYTES))
                except (OSError, UnicodeDecodeError):
                    differ = ["version"]
                if (text := ", ".join(differ)) not in seen:
                    seen.add(text)
                    yield text

    def _spaces(self) -> list[Path]:
        try:
            return [each for each in self.folder.iterdir() if each.name.startswith(SPACE_PREFIX) and each.is_dir()]
        except OSError:
            return []

    def _files(self) -> Iterator[tuple[int, int, int, str]]:
        """Last use, number in the chain counted from its end, bytes and path of each block in the folder.

        A time to come is of a clock that has since been set back, so the block is older than those with a time.
        """
        now = time.time_ns()
        for space in self._spaces():
            for chain in _entries(str(space)):
                if chain.name.startswith(HIDDEN) or not chain.is_dir():
                    continue
                for block in _entries(chain.path):
                    try:
                        status = block.stat()
                    except OSError:
                        continue
                    last_use = status.st_mtime_ns if status.st_mtime_ns <= now + CLOCK_STEP_NS else 0
                    yield last_use, -_depth(block.name), status.st_size, block.path

    def _remove_stale(self) -> None:
        """Delete files of processes that ended while they wrote or deleted."""
        now = time.time()
        for space in self._spaces():
            for entry in _entries(str(space)):
                if entry.name.startswith(f"{HIDDEN}deleted"):
                    shutil.rmtree(entry.path, ignore_errors=True)
                elif entry.is_dir():
                    for file in _entries(entry.path):
                        try:
                            if file.name.startswith(HIDDEN) and abs(now - file.stat().st_mtime) > STALE_S:
                                os.unlink(file.path)
                        except OSError:
                            continue

    def _make_room(self) -> None:
        """Evict if the folder has no room for one block more."""
        most = FULL_SHARE * self.max_bytes - self.file_bytes
        if self._total <= most and self._since_scan <= SCAN_SHARE * self.max_bytes:
            return
        files = sorted(self._files())
        self._total, self._since_scan = sum(size for _, _, size, _ in files), 0
        if self._total <= most:
            return
        # Some more than must be, so that not every block that follows looks at the whole folder.
        target = most - min(SCAN_SHARE * self.max_bytes, most / 2)
        for _, _, size, path in files:
            if self._total <= target:
                break
            _unlink(path)
            self._total -= size
            self.counts.evicted_blocks += 1
            try:
                os.rmdir(os.path.dirname(path))
            except OSError:
                continue

    def _write(self, path: str, header: bytes, data: np.ndarray) -> None:
        self._num_files += 1
        chain = Path(path).parent
        temporary = chain / f"{HIDDEN}{self._token}-{self._num_files}"
        try:
            for attempt in range(2):
                chain.parent.mkdir(PRIVATE, parents=True, exist_ok=True)
                chain.mkdir(PRIVATE, exist_ok=True)
                try:
                    return write_file(temporary, Path(path), header, data)
                except FileNotFoundError:  # another process has deleted the chain's folder in between
                    if attempt:
                        raise
        finally:
            _unlink(str(temporary))

    def _read(self, path: str) -> np.ndarray:
        if not hasattr(self._local, "buffer"):
            # One page more than a block's file, so that a file that has grown is found out.
            self._local.buffer = aligned_buffer(self.file_bytes + padded(1))
        try:
            return read_whole(Path(path), self._local.buffer, self.read_mode)
        except OSError as error:
            if error.errno != errno.EINVAL or self.read_mode != DIRECT:
                raise
            self.read_mode = BUFFERED  # the file system opens files for direct I/O, and then does not read them
            return read_whole(Path(path), self._local.buffer, self.read_mode)

    def _refused(self, what: str, error: OSError) -> None:
        self.counts.errors += 1
        if not self._has_warned:
            self._has_warned = True
            _warn_once(
                f"{self.folder}: cannot {what} blocks of keys and values: {error.strerror or error}; requests are "
                "computed without them"
            )


def _warn_once(text: str) -> None:
    if text not in _WARNED:
        _WARNED.add(text)
        logging.getLogger(__name__).warning("%s", text)


def _depth(name: str) -> int:
    try:
        return int(name.partition("-")[0], 16)
    except ValueError:  # not a file of ours
        return 0


def _entries(path: str) -> list[os.DirEntry]:
    try:
        with os.scandir(path) as entries:
            return list(entries)
    except OSError:
        return []


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return
