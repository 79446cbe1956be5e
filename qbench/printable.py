"""Text of files and of other processes, made safe for a terminal."""

import json
import re

LINES = "\n\t"  # the control characters of a text of several lines

# C0 and C1 controls, of which ESC and CSI begin the commands of a terminal; lone surrogates, which no encoding has;
# and characters that change the direction or the end of a line: source https://www.unicode.org/reports/tr9/
UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str, keep: str = "") -> str:
    """Return the text with control characters as JSON's escapes: ESC becomes "\\u001b".

    JSON stays JSON of the same meaning, because only strings can hold these characters.
    keep   control characters that stay
    """
    return UNSAFE.sub(lambda found: found[0] if found[0] in keep else json.dumps(found[0])[1:-1], text)
