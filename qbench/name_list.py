"""Names in one text, separated by commas."""


def names_in(text: str) -> tuple[str, ...]:
    """ "a, b" -> ("a", "b"); an empty text is one empty name, for its reader to refuse"""
    return tuple(name.strip() for name in text.split(","))
