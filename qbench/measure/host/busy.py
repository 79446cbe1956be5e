"""How busy others keep this machine: what a speed measured now is worth."""

import psutil

WATCHED_S = 0.5
QUIET = 0.1  # of all cores: what a system does by itself


def busy_share() -> float:
    """The share of all cores' time that is not idle, 0 to 1, while this process waits."""
    return psutil.cpu_percent(interval=WATCHED_S) / 100


def busy_warning(share: float) -> str | None:
    """One line for the user, where others take so much that speeds are of what they leave."""
    if share <= QUIET:
        return None
    return f"warning: other programs keep {100 * share:.0f} % of this machine busy; speeds are of what they leave"
