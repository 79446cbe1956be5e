"""Groups of sites that share one factor from error to KLD; each costs a perturbed forward pass."""

from collections.abc import Callable, Sequence

from qbench.search.sites import Site

MOST_GROUPS = 64  # forward passes of part of the model each, over a part of the calibration text

Group = tuple[int | None, str]  # first layer, or None outside the layers; word that its sites share


def group_sites(sites: Sequence[Site], most: int = MOST_GROUPS) -> dict[str, Group]:
    """Name of a site -> its group: one per site if those are few, else one per part of so many layers."""
    num_layers = 1 + max((site.layer for site in sites if site.layer is not None), default=0)
    spans = [1 << power for power in range(num_layers.bit_length() + 1)]
    ways = [(1, _word), *((span, _part) for span in spans)]
    for span, name_of in ways:
        groups = {site.name: _group(site, span, name_of) for site in sites}
        if len(set(groups.values())) <= most or (span, name_of) == ways[-1]:
            return groups
    raise AssertionError("the last way has a handful of groups")


def _group(site: Site, span: int, name_of: Callable[[Site], str]) -> Group:
    if site.layer is None:
        return None, _word(site)
    return site.layer // span * span, name_of(site)


def _word(site: Site) -> str:
    """ "blk.3.ffn_up.weight" -> "ffn_up" """
    return site.name.removesuffix(".weight").rpartition(".")[2]


def _part(site: Site) -> str:
    return "attention" if "attn" in site.name else "feed-forward"
