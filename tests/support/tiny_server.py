"""Servers on free ports of the loopback, in a thread of the test's process."""

import threading
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import replace

import openai
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.byte_tokenizer import BOS, byte_tokenizer
from support.metrics import metrics_of
from support.waits import WAIT_S

from qbench.measure.subject import Subject
from qbench.run.cache_spec import FULL
from qbench.run.options import RunOptions
from qbench.runtime.engine import EngineOptions, StoreOptions
from qbench.serve.app import create_app
from qbench.serve.limits import ServeLimits
from qbench.serve.server import GracefulServer, listen, open_served, server_config

NO_CHANGES: Mapping[str, object] = {}
TEMPLATE = """{{ bos_token }}{% for message in messages %}
{% if message.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}
[{{ message.role }}] {{ message.content }}
{% endfor %}
{% if add_generation_prompt %}[assistant] {% endif %}"""


def tiny_subject(
    template: str | None = TEMPLATE, context: int = 512, policy: str = FULL, changes: Mapping[str, object] = NO_CHANGES
) -> Subject:
    """A random model of one token per byte: any text is a prompt, and any bytes an answer.

    changes  to its config
    """
    fields = {"vocab_size": BOS + 1, "max_position_embeddings": context, "eos_token_id": None} | dict(changes)
    config = small_config(**fields)
    info = replace(byte_tokenizer().info, chat_template=template)
    options = RunOptions(compute="exact", threads=torch.get_num_threads(), policy=policy)
    return Subject("tiny", ArraySource(config, random_weights(config), tokenizer=info), options)


class Running:
    """A server, its address, and its model."""

    def __init__(self, served, url: str) -> None:
        self.served = served
        self.url = url

    def client(self, **options) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=options.pop("api_key", "any"), max_retries=0, **options)

    @property
    def stats(self):
        return self.served.metrics.stats

    def metrics(self) -> dict[str, float]:
        return metrics_of(self.url)

    def ended(self, by: str) -> int:
        return int(self.metrics().get(f'qbench_requests_total{{ended_by="{by}"}}', 0))


@contextmanager
def running(
    subject: Subject,
    options: EngineOptions,
    api_key: str | None = None,
    store: StoreOptions | None = None,
    limits: ServeLimits | None = None,
    allowed_hosts: tuple[str, ...] = (),
    allowed_origins: tuple[str, ...] = (),
):
    served = open_served(subject, options, store)
    limits = limits or ServeLimits.of(served.max_seq_len)
    with listen("127.0.0.1", 0) as listening:
        app = create_app(served, api_key, allowed_hosts, limits, allowed_origins)
        server = GracefulServer(server_config(app, limits, "error"), served.engine)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield Running(served, f"http://127.0.0.1:{listening.getsockname()[1]}")
        finally:
            server.should_exit = True
            thread.join(WAIT_S)
            assert not thread.is_alive()
