"""hold_port: a port that stays free until one program takes it."""

import socket


def hold_port() -> socket.socket:
    """A socket whose port no other program gets by chance, while it is open, and which one that asks for it can have.

    It does not listen, and both programs set SO_REUSEADDR, as stores of torch do.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("", 0))
    return held
