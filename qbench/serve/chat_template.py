"""A conversation as the text that its model was trained on, by the Jinja template that the model brings."""

import json
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from qbench.runtime.text.tokenizer import Tokenizer
from quant.errors import InputError
from quant.present import present

SECONDS = 5.0  # a template of 20 KB renders 1,000 messages in less than 0.1 s
MEMORY_BYTES = 512 << 20  # Python with Jinja takes about 40 MB of address space for code, the rest is text
MOST_CHARS = 16 << 20  # as many as the largest body of a request
MOST_TEMPLATE_CHARS = 1 << 20
GRACE_S = 10.0  # beyond SECONDS, until a worker that its own alarm does not reach is killed; it starts in 0.2 s


class ChatTemplate:
    """The template comes from whoever made the model, so it runs in a sandbox, in a process with limits.

    One conversation is rendered at a time. A worker that died is replaced by the next call.
    raises   InputError for text that is no Jinja, or that breaks a limit
    """

    def __init__(self, tokenizer: Tokenizer, seconds: float = SECONDS, memory_bytes: int = MEMORY_BYTES) -> None:
        text = present(tokenizer.info.chat_template)
        if len(text) > MOST_TEMPLATE_CHARS:
            raise InputError(f"the chat template has {len(text)} characters, expected at most {MOST_TEMPLATE_CHARS}")
        self._options: dict[str, Any] = {
            "text": text,
            "tokens": special_texts(tokenizer),
            "most_chars": MOST_CHARS,
            "memory_bytes": memory_bytes,
            "seconds": seconds,
        }
        self._turn = threading.Lock()
        self._worker: subprocess.Popen[str] | None = None
        self._is_closed = False
        with self._turn:
            self._start()

    def render(self, messages: Sequence[dict[str, str]], variables: Mapping[str, Any] = MappingProxyType({})) -> str:
        """The conversation, open for the assistant's answer; `variables`: chat_template_kwargs of the request.

        raises   InputError for messages that the template refuses, or over which it breaks a limit
        """
        with self._turn:
            if self._worker is None:
                self._start()
            return self._ask({"messages": list(messages), "variables": dict(variables)})

    def close(self) -> None:
        """End the worker, also while it renders; the call that waits for it fails."""
        self._is_closed = True
        if (worker := self._worker) is not None:
            worker.kill()

    def _start(self) -> None:
        """raises InputError as the constructor"""
        if self._is_closed:
            raise InputError("the server is ending")
        command = [sys.executable, "-m", "qbench.serve.template_worker"]
        self._worker = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )
        self._ask(self._options)

    def _ask(self, message: Mapping[str, Any]) -> str:
        """raises InputError with the words of the worker, or with the limits if it died"""
        worker = present(self._worker)
        stdin, stdout = present(worker.stdin), present(worker.stdout)
        # The worker's own alarm ends it first; this one is for a worker that the alarm cannot reach.
        alarm = threading.Timer(self._options["seconds"] + GRACE_S, worker.kill)
        alarm.start()
        try:
            stdin.write(json.dumps(message) + "\n")
            stdin.flush()
            line = stdout.readline()
        except OSError:
            line = ""
        finally:
            alarm.cancel()
        if not line.endswith("\n"):
            self._bury(worker)
            limits = f"{self._options['seconds']:g} s and {self._options['memory_bytes']} bytes of memory"
            raise InputError(f"the model's chat template broke its limits of {limits}, or the server is ending")
        answer = json.loads(line)
        if "error" in answer:
            if message is self._options:
                self._bury(worker)
            raise InputError(answer["error"])
        return answer["text"]

    def _bury(self, worker: "subprocess.Popen[str]") -> None:
        self._worker = None
        worker.kill()
        worker.wait()
        for pipe in (worker.stdin, worker.stdout):
            try:
                present(pipe).close()
            except OSError:  # bytes that were left to write
                pass


def special_texts(tokenizer: Tokenizer) -> dict[str, str]:
    """Texts of the BOS and the EOS token under their names in templates; empty for one that is missing."""
    ids = {"bos_token": tokenizer.info.bos_token_id, "eos_token": tokenizer.info.eos_token_id}
    return {name: "" if token is None else tokenizer.tokenizer.id_to_token(token) or "" for name, token in ids.items()}
