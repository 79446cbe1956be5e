"""Times as texts that sort in the order of time: of UTC, in one form, with any number of digits after the second."""

import re
from datetime import UTC, datetime

# "+" sorts before "." and before digits, so a moment is before all those that have more digits.
UTC_TEXT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00"
_UTC_TEXT = re.compile(UTC_TEXT)


def utc_text(time: str) -> str:
    """The same moment in UTC_TEXT's form; a time without an offset is of UTC. A text that is no time stays as it is."""
    if _UTC_TEXT.fullmatch(time):
        return time
    try:
        moment = datetime.fromisoformat(time)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
    except (ValueError, OverflowError):  # no day of the calendar, or not in the years of `datetime`
        return time
