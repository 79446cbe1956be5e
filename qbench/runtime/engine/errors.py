"""Errors that refuse a request, in addition to InputError for a wrong request."""

from quant.errors import InputError


class QueueFull(InputError):
    """As many requests wait as may: try again later."""


class NeverFits(InputError):
    """The request needs more pages than there are, even alone."""
