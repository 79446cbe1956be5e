"""What a request may be refused with, beside InputError for what is wrong with it."""

from quant.errors import InputError


class QueueFull(InputError):
    """As many requests wait as may: try again later."""


class NeverFits(InputError):
    """The request needs more pages than there are, even alone."""
