"""Options that a prefill pattern cannot have: the message names the option, its value and the expected one."""

import re

import pytest

from qbench.prefill import parse_pattern
from quant.errors import InputError


@pytest.mark.parametrize(
    "text, named",
    [
        ("stra", "did you mean 'star'"),
        ("star:", "options are missing after the colon; expected star:block=25%,query=128"),
        ("star:block=0", "budget '0'"),
        ("star:block=64MiB", "block is 64MiB, expected tokens"),
        ("star:25%,query=-1", "query is -1, expected at least 0"),
        ("star:25%,query=x", "query is 'x', expected a whole number"),
        ("star:25%,anchor=3", "option 'anchor' is unknown; expected star:"),
        ("star:25%,block=30%", "given twice"),
        ("segment-state:100", "segment is 100, expected a multiple of 128 tokens"),
        ("segment-state:run=0", "run is 0, expected at least 1"),
        ("segment-state:run=48", "run is 48, expected a divisor of the segment of 1024 tokens"),
        ("segment_state", "did you mean 'segment-state'"),
        ("minference:vertical=29", "vertical is 29, expected at least 30"),
        ("minference:slash=99", "slash is 99, expected at least 100"),
        ("flexprefill:gamma=0", "gamma is 0, expected a share above 0 and up to 1"),
        ("flexprefill:gamma=1.5", "gamma is 1.5"),
        ("flexprefill:tau=2", "tau is 2, expected a number from 0 to 1"),
        ("flexprefill:budget=0", "budget is 0, expected at least 1"),
        ("xattention:0", "threshold is 0, expected a share above 0 and up to 1"),
        ("xattention:stride=48", "stride is 48, expected a divisor of 128"),
        ("xattention:stride=0", "stride is 0"),
        ("xattention:scope=head", "scope is 'head', expected row or layer"),
    ],
)
def test_bad_options_are_named(text, named):
    with pytest.raises(InputError, match=re.escape(named)):
        parse_pattern(text)
