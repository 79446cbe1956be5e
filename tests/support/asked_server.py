"""`python -m support.asked_server STORE`: a tiny model behind HTTP, with a store of prefixes; asks it a few prompts.

Writes into the working directory: after each answer the number of blocks that the store has acknowledged, and
answers.json at the end, with the texts and the number of blocks that the store found damaged.
"""

import json
import sys
from pathlib import Path

from support.faults import ACKNOWLEDGED
from support.tiny_server import running, tiny_subject

from qbench.runtime.engine import EngineOptions, StoreOptions

PROMPTS = [f"Once upon a time there was king number {number}. " * 6 for number in range(6)]


def main(store: str) -> int:
    options = EngineOptions(num_pages=128, max_batch=4)
    with running(tiny_subject(), options, store=StoreOptions(Path(store))) as server:
        completions = server.client().completions
        asked = {"model": "tiny", "temperature": 0, "max_tokens": 8}
        texts = []
        for prompt in PROMPTS:
            texts.append(completions.create(prompt=prompt, **asked).choices[0].text)
            stats = server.served.engine._engine.stats().store
            assert stats is not None
            with open(ACKNOWLEDGED, "a") as file:
                file.write(f"{stats.blocks.written_blocks}\n")
        stats = server.served.engine._engine.stats().store
    assert stats is not None
    Path("answers.json").write_text(json.dumps({"texts": texts, "corrupt_blocks": stats.blocks.corrupt_blocks}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
