"""Limits of the server: bytes, seconds, connections, and requests in preparation."""

import resource
from dataclasses import dataclass

MOST_BODY_BYTES = 16 << 20  # a context of a million tokens takes 4 MB as text, 8 MB as ids
LEAST_BODY_BYTES = 1 << 20
BODY_BYTES_PER_TOKEN = 64  # a token id takes up to 8; a text has about 4 characters per token, up to 6 bytes each
REQUEST_S = 600.0
SPARE_FILES = 64  # of the process, in addition to connections: the model, the store, libraries


@dataclass(frozen=True, slots=True)
class ServeLimits:
    """body_bytes      of one request
    held_bytes      bodies of all requests that are not answered yet; client_bytes: of one address
    preparing       requests whose text waits to become tokens, or becomes tokens
    connections     open at once
    receive_s       from the first byte of a request to its last
    request_s       from the end of a request to the end of its answer
    idle_s          that a connection may be without a request: more than the 60 s after which proxies close theirs,
                    or a request could meet the end of the connection
    """

    body_bytes: int = MOST_BODY_BYTES
    held_bytes: int = 256 << 20
    client_bytes: int = 128 << 20
    preparing: int = 1024
    connections: int = 4096
    receive_s: float = 30.0
    request_s: float = REQUEST_S
    idle_s: float = 65.0

    @classmethod
    def of(cls, max_seq_len: int, request_s: float = REQUEST_S) -> "ServeLimits":
        """For a model of this context, on this machine."""
        body_bytes = min(max(max_seq_len * BODY_BYTES_PER_TOKEN, LEAST_BODY_BYTES), MOST_BODY_BYTES)
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        connections = 4096 if files == resource.RLIM_INFINITY else max(min(4096, files - SPARE_FILES), 1)
        return cls(body_bytes=body_bytes, connections=connections, request_s=request_s)
