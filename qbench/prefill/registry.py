"""Names of prefill patterns: `@pattern("star")` registers a class, `parse_pattern("star:block=25%")` makes one."""

from qbench.prefill.pattern import PrefillPattern
from qbench.registry import Registry

_PATTERNS = Registry[PrefillPattern]("prefill pattern")
pattern = _PATTERNS.register
pattern_names = _PATTERNS.names
pattern_entries = _PATTERNS.entries
parse_pattern = _PATTERNS.parse
