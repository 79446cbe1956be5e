"""Short code in text and tables, which stays on one line."""

import re

SHORT_CODE = re.compile(r"<code>([^<]{1,24})</code>")  # as wide as half a phone; longer code may break


def mark_short_code(html: str) -> str:
    """Give code such as `--kv-ram` the class `short`, which extra.css keeps whole."""
    return SHORT_CODE.sub(r'<code class="short">\1</code>', html)
