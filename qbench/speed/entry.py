"""`Entry`: a row of a lineup. Separate from `lineup`, so that command lines are read without importing torch."""

from dataclasses import dataclass, replace

from qbench.run.cache_spec import DYNAMIC
from qbench.run.options import RunOptions
from qbench.run.work import SpeedWork


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of a lineup: a cache, and the work that is timed with it."""

    layout: str
    policy: str
    case: SpeedWork

    @property
    def name(self) -> str:
        """ "policy full at depth 1024" """
        cache = f"policy {self.policy}" if self.layout == DYNAMIC else f"cache {self.layout}"
        batch = f", batch {self.case.batch}" if self.case.batch > 1 else ""
        return f"{cache} at depth {self.case.depth}{batch}"

    def options(self, common: RunOptions) -> RunOptions:
        return replace(common, cache=self.layout, policy=self.policy)
