"""Eleven habits that make English hard to read, as regular expressions."""

import re

_NUMBER = r"\d[\d.,]*|one|two|three|four|five|six|eight|ten|half|once|twice|so many"
_UNIT = (
    r"bits?|bytes?|[KMGT]i?B|floats?|words?|codes?|values?|numbers?|scales?|weights?|tokens?|lines?|rows?|columns?|pages?|"
    r"blocks?|groups?|heads?|layers?|experts?|steps?|passes|calls?|requests?|sequences|files?|times?|ns|us|ms|s|seconds?|"
    r"minutes?|hours?|operations?|instructions?|cycles|multiplications|additions|reads?|loads|MACs|FLOPs?|registers?|lanes"
)
_COUNTED = (
    r"token|layer|head|row|column|block|group|channel|expert|step|pass|call|case|file|test|value|number|weight|code|page|"
    r"request|sequence|process|thread|core|machine|node|rank|side|lane|vector|register|byte|line|word|time|second|minute|"
    r"hour|kernel|op|problem|tile|panel|chunk|window|document|item|task|tensor|format|plane|query|key|point|sample|round|"
    r"parameter|model|element|feature|matrix|program|warp|cell|question|name|recipe|cache|element|entry|branch|draft|turn"
)

PATTERNS = {
    # "what is stored": name the thing. Allowed: "what to do", "what if", and questions.
    "what-as-noun": re.compile(r"(?<!-)\b[Ww]hat\b(?!\s+(?:to|if)\b)(?![^.;\n]*\?)"),
    # "where none is left": "if" or "when". A place is fine: "the folder where the file is".
    "where-as-condition": re.compile(
        r"\b[Ww]here\s+(?:it|they|there|none|nothing|nobody|no|that|this|these|those|one|any|each|all|both|not)\b"
    ),
    "archaic": re.compile(
        r"\b(?:anew|alike|beside|lies?|lay|stands?(?!-)|stood|told|tells?|but for|save for|nought|whence|thereof)\b",
        re.IGNORECASE,
    ),
    # "4 bytes a token": "4 bytes per token".
    "a-for-per": re.compile(rf"\b(?:{_NUMBER}|{_UNIT})\s+an?\s+(?:{_COUNTED})\b(?!\s+of\b)"),
    # "Of the text.": begin with the subject.
    "of-sentence": re.compile(r"(?<![\w-])Of\b(?!\s+course\b)"),
    # "none has it": "no case has it". Python's None and a `none` in code are not meant.
    "none-as-pronoun": re.compile(r"\bnone\b(?![-\"'=])|\bNone (?:of|has|have)\b"),
    # "those that are left": repeat the noun, "the rows that are left".
    "those-that": re.compile(r"\b[Tt]hose (?:that|of|which|who|whose|with)\b"),
    # "on the CPU alone.": "only on the CPU".
    "alone-at-the-end": re.compile(r"\balone\b(?=\s*(?:[.,;:)]|$))"),
    # "after so many steps": name the number.
    "so-many": re.compile(r"\bso (?:many|much)\b"),
    # A docstring that begins with a parameter: begin with a summary.
    "parameter-first": re.compile(r"\A\s*[a-z_]\w*(?:, [a-z_]\w*)* {2,}\S"),
}

# The name of a test, as words: a short sentence that names the behaviour. A single word is too short for that.
TEST_NAME = re.compile(
    r"^\S+$"
    r"|\b(?:tells?|telling|told|says?|saying|said|lies?|lay|stands?|stood)\b"
    r"|\b(?:what|those|none|nobody|everybody|however|whatever|whichever|beside|alike|anew|but for|save for|ones own)\b"
    r"|\bwhere (?:it|they|there|none|nothing|no|that|this|these|those|one|any|each|all|both|not)\b"
    r"|\b(?:so|as|how) (?:many|much)\b|\b(?:its|their) like\b|\b(?:has|have|had|does|do) it$"
    r"|^(?:of|who)\b"
    r"|\b(?:alone|own|cannot be|(?:has|have|is|are|does|do) not)$"
)

HABITS = (*PATTERNS, "test-name")

CODE = re.compile(r"``.*?``|`[^`\n]*`|<!--.*?-->", re.DOTALL)


def without_code(text: str) -> str:
    """`text` with code spans and HTML comments blanked; every other character keeps its place."""
    return CODE.sub(lambda match: re.sub(r"[^\n]", "_", match[0]), text)
