"""HTTP without the 5 s after which httpx gives up: a server on a busy machine may need them for one step."""

from functools import partial

import httpx
from support.waits import WAIT_S

get, post, delete, request = (
    partial(call, timeout=WAIT_S) for call in (httpx.get, httpx.post, httpx.delete, httpx.request)
)
Client = partial(httpx.Client, timeout=WAIT_S)
