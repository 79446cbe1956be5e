"""Seconds as people read them."""


def readable_duration(seconds: float) -> str:
    """4.2 -> "4 s", 125 -> "2 min 5 s", 3700 -> "1 h 2 min" """
    whole = round(seconds)
    minutes, rest = divmod(whole, 60)
    if minutes < 1:
        return f"{rest} s"
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
