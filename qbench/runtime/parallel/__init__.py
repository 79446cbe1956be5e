"""One model on many ranks: tensor and pipeline parallel over torch.distributed."""

from qbench.runtime.parallel.follow import follow
from qbench.runtime.parallel.joined import agree, join_ranks, joined_ranks
from qbench.runtime.parallel.load import load_ranked
from qbench.runtime.parallel.model import RankModel
from qbench.runtime.parallel.ranks import Ranks

__all__ = ["RankModel", "Ranks", "agree", "follow", "join_ranks", "joined_ranks", "load_ranked"]
