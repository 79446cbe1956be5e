"""The one exception that means: the user gave us something we cannot work with."""


class InputError(ValueError):
    """Bad input, told in one line: what we got, what we expected, what to do.

    The command line prints the message alone and exits with 2; everything that reads a file,
    a recipe or a model spec raises this and nothing else for what a user can mend.
    """
