"""`python -m qbench.serve.template_worker`: a chat template in a process with limits on memory and time.

in    one JSON line {"text", "tokens", "most_chars", "memory_bytes", "seconds"}, then {"messages", "variables"}*
out   {"text": ""}, then {"text": the rendered conversation}*; {"error": "one line"} instead of any
The kernel ends the process when a call takes longer than `seconds`, also if its parent is gone.
"""

import json
import resource
import signal
import sys
from collections.abc import Callable
from functools import partial

from qbench.serve.template_sandbox import TemplateSandbox
from quant.errors import InputError


def main() -> int:
    options = json.loads(sys.stdin.readline())
    resource.setrlimit(resource.RLIMIT_AS, (options["memory_bytes"], options["memory_bytes"]))
    templates: list[TemplateSandbox] = []

    def compile_it() -> str:
        templates.append(TemplateSandbox(options["text"], options["tokens"], options["most_chars"]))
        return ""

    answer(compile_it, options["seconds"])
    if not templates:
        return 1
    for line in sys.stdin:
        asked = json.loads(line)
        answer(partial(templates[0].render, asked["messages"], asked["variables"]), options["seconds"])
    return 0


def answer(call: Callable[[], str], seconds: float) -> None:
    """Write the result of the call, or the reason of its failure, as one line."""
    signal.setitimer(signal.ITIMER_REAL, seconds)  # SIGALRM ends the process
    try:
        message = {"text": call()}
    except InputError as error:
        message = {"error": str(error)}
    except (MemoryError, RecursionError) as error:
        message = {"error": f"the model's chat template ended in {type(error).__name__}"}
    signal.setitimer(signal.ITIMER_REAL, 0)
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
