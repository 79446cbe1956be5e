"""The Python API: the same work as the commands, with Python objects as results.

`import qbench` offers these names; nothing heavy is imported before the first call.
"""

from qbench.api.loaded import LoadedModel, load
from qbench.api.measure import bench, compare, evaluate, recommend, results, sweep
from qbench.api.plots import plot
from qbench.api.write import quantize

__all__ = ["LoadedModel", "bench", "compare", "evaluate", "load", "plot", "quantize", "recommend", "results", "sweep"]
