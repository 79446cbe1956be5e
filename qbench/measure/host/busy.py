"""Load of this machine by other processes, which shows how reliable a measured speed is."""

import psutil

WATCHED_S = 0.5
QUIET = 0.1  # share of all cores that an idle system uses


def busy_share() -> float:
    """The share of all cores' time that is not idle, 0 to 1, while this process waits."""
    return psutil.cpu_percent(interval=WATCHED_S) / 100


def busy_warning(share: float) -> str | None:
    """One line for the user, if other processes take so much that speeds are lower than on an idle machine."""
    if share <= QUIET:
        return None
    return f"warning: other programs keep {100 * share:.0f} % of this machine busy; speeds are of what they leave"
