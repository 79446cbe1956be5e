"""When a faster way pays: one file per question; importing this package registers all of them."""

from qbench.breakeven import kv, kv_disk, offload, prefill, retrieval, w8a8  # noqa: F401 - each registers its question
from qbench.breakeven.question import Question, Settings, get_question, question, questions
from qbench.breakeven.verdict import Answer, Point

__all__ = ["Answer", "Point", "Question", "Settings", "get_question", "question", "questions"]
