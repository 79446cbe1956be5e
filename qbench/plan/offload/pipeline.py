"""The step of a placement, from one event to the next: reads run ahead as far as the ring allows.

The formula of `costs` takes reads and computation as overlapped in full. They are not: a large streamed unit is waited
for if the ring holds no other, and layers that stay give the disk nothing to do if the ring is full. So the two walk
through the layers here, as the streamer and the model do.

    the disk reads chunks of the streamed units in turn, each as soon as the ring has room for it
    a layer is computed when all its chunks are there; the unit before it then leaves the ring
    while the disk reads, computation is slower, as was measured
"""

from collections.abc import Sequence
from dataclasses import dataclass

from qbench.measure.speed_figures import StepTime
from qbench.plan.offload.costs import DiskRates
from qbench.runtime.offload.streamer import CHUNK_BYTES

WARM_STEPS, TIMED_STEPS = 2, 4  # the ring is filled in the first; several, since the disk runs ahead of a step's end


@dataclass(frozen=True, slots=True)
class Stage:
    """A layer or the head.

    read_bytes   from the disk per step; 0: it stays in memory
    held_bytes   of the ring while it is there
    compute_s    with all cores
    blocked_s    of reads of experts, which begin when the router has chosen and which computation waits for
    """

    read_bytes: int
    held_bytes: int
    compute_s: float
    blocked_s: float = 0.0


def pipeline_time(stages: Sequence[Stage], ring_bytes: float, disk: DiskRates) -> StepTime:
    """The mean of steps that follow each other."""
    run = _Run(stages, ring_bytes, disk)
    for _ in range(WARM_STEPS):
        run.step()
    start, waited, read = run.now, run.waited, run.num_read
    for _ in range(TIMED_STEPS):
        run.step()
    step = (run.now - start) / TIMED_STEPS
    wait = (run.waited - waited) / TIMED_STEPS
    num_bytes = (run.num_read - read) / TIMED_STEPS
    return StepTime(step, step - wait, wait, num_bytes / disk.bytes_s, num_bytes)


class _Run:
    """The disk and the computation at one moment, `now`."""

    def __init__(self, stages: Sequence[Stage], ring_bytes: float, disk: DiskRates) -> None:
        self.stages, self.disk = stages, disk
        self.chunks = [chunk for number, stage in enumerate(stages) for chunk in _chunks(number, stage)]
        self.free = ring_bytes
        self.left = [0.0] * len(stages)  # bytes of a unit that is being read
        self.is_there = [False] * len(stages)
        self.next_chunk = 0
        self.reading: tuple[int, float] | None = None  # the unit, and bytes of the chunk that are to come
        self.now = self.waited = self.num_read = 0.0

    def step(self) -> None:
        for number, stage in enumerate(self.stages):
            begin = self.now
            while stage.read_bytes and not self.is_there[number]:
                self._start_read()
                if self.reading is None:
                    raise ValueError(f"the ring is too small for a unit of {stage.held_bytes} bytes")
                self._advance(self.reading[1] / self.disk.bytes_s)
            self.now += stage.blocked_s
            self.num_read += stage.blocked_s * self.disk.bytes_s
            self.waited += self.now - begin
            self._compute(stage.compute_s)
            if stage.read_bytes:
                self.is_there[number] = False
                self.free += stage.held_bytes

    def _compute(self, seconds: float) -> None:
        """As long as one core is left for it; less of the time while the disk reads."""
        slowed = 1 - min(0.9, self.disk.bytes_s * self.disk.slowdown_s)
        while seconds > 1e-12:
            self._start_read()
            if self.reading is None:
                self.now += seconds
                return
            part = min(seconds / slowed, self.reading[1] / self.disk.bytes_s)
            self._advance(part)
            seconds -= part * slowed

    def _start_read(self) -> None:
        """The next chunk, if nothing is read, its unit is not there yet, and the ring has room."""
        if self.reading is not None or not self.chunks:
            return
        number, size, takes, is_first = self.chunks[self.next_chunk]
        if takes > self.free or (is_first and (self.is_there[number] or self.left[number])):
            return
        if is_first:
            self.left[number] = self.stages[number].read_bytes
        self.free -= takes
        self.next_chunk = (self.next_chunk + 1) % len(self.chunks)
        self.reading = number, size

    def _advance(self, seconds: float) -> None:
        assert self.reading is not None
        number, size = self.reading
        done = seconds * self.disk.bytes_s
        self.now += seconds
        self.num_read += min(done, size)
        if size - done > 1e-3:
            self.reading = number, size - done
            return
        self.reading = None
        self.left[number] -= min(CHUNK_BYTES, self.left[number])
        self.is_there[number] = not self.left[number]


def _chunks(number: int, stage: Stage) -> list[tuple[int, float, float, bool]]:
    """(unit, bytes of the read, bytes of the ring, whether it is the first) of each request."""
    made = []
    for start in range(0, stage.read_bytes, CHUNK_BYTES):
        end = min(start + CHUNK_BYTES, stage.read_bytes)
        takes = (stage.held_bytes if end == stage.read_bytes else end) - start
        made.append((number, float(end - start), float(takes), start == 0))
    return made
