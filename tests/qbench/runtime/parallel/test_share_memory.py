"""A context that one process may not hold, and two may."""

import signal
from contextlib import ExitStack

import pytest
import torch
from support.launched_ranks import run_ranks
from support.memory_limit import limited_group

from qbench.run.options import RunOptions
from qbench.runtime import load_model
from qbench.sources import open_source

CONTEXT, CHUNK = 8192, 256
# Keys and values of ref:llama-8k in float32: 4 layers x 2 x 2 heads x 64 x 4 bytes per token are 32 MiB.
BUDGET_BYTES = 36 << 20  # a half of them, and 20 MiB for activations, the link, and pages that a fork copies

RANK = f"""
import ctypes, sys, torch
from pathlib import Path
from qbench.run.rank_layout import RankLayout
from qbench.run.options import RunOptions
from qbench.runtime import load_model
from qbench.runtime.parallel.joined import join_ranks
from qbench.sources import open_source
sp = int(sys.argv[1])
if sp > 1:
    join_ranks(RankLayout(sp=sp), 60)
model = load_model(open_source("ref:llama-8k"), RunOptions(division=None if sp == 1 else "sp=2", threads=1))
tokens = (torch.arange({CONTEXT}) % 251)[None]
model(tokens[:, :{CHUNK}], model.new_cache(1, {CHUNK}), last_only=True)
ctypes.CDLL(None).malloc_trim(0)  # so that no free memory is left
Path(sys.argv[2], "cgroup.procs").write_text("0")  # its limit counts allocations from here on
cache = model.new_cache(1, {CONTEXT})
for part in tokens.split({CHUNK}, 1):
    logits = model(part, cache, last_only=True)
print(cache.size_bytes, int(logits.argmax()))
if sp > 1:
    model.ranks.meeting.part()
"""


@pytest.mark.exhaustive("prefills of 8192 tokens")
def test_two_ranks_hold_a_context_that_one_cannot():
    with ExitStack() as stack:
        groups = [str(stack.enter_context(limited_group(BUDGET_BYTES))) for _ in range(3)]
        (alone,) = run_ranks(("1", groups[0]), code=RANK)
        several = run_ranks(*[("2", group) for group in groups[1:]], code=RANK)
    assert alone.status == -signal.SIGKILL, alone
    model, tokens = load_model(open_source("ref:llama-8k"), RunOptions(threads=1)), (torch.arange(CONTEXT) % 251)[None]
    cache = model.new_cache(1, CONTEXT)
    expected = [model(part, cache, last_only=True) for part in tokens.split(CHUNK, 1)][-1]
    assert several[0].out.split() == [str(cache.size_bytes // 2), str(int(expected.argmax()))], several
