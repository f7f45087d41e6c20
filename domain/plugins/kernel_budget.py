"""How much the plugins of a profile may use together, so that no pod meets a bound of the kernel."""

from __future__ import annotations

from domain.kernels import arrays as kernel
from domain.model import limits
from domain.model.errors import FieldError
from domain.plugins.base import (
    LimitFilter,
    Plugin,
    RelativeScore,
    ResourceFilter,
    ResourceScore,
    StaticFilter,
    StaticScore,
)
from domain.plugins.counting import CountScore

assert limits.static_reasons_max < kernel.NOT_HOME
assert limits.limits_per_profile_max == kernel.LIMITS_MAX
assert limits.normalised_scores_max == kernel.RAWS_MAX
assert limits.resource_scores_max == kernel.TERMS_MAX
assert limits.scored_resources_max == kernel.PARTS_MAX
assert limits.score_numbers_max == kernel.NUMBERS_MAX
assert limits.variance_scores_max == kernel.VARIANCES_MAX
assert limits.count_scores_max == kernel.COUNTED_MAX


class KernelBudget:
    """Adds up what the plugins of one profile use, one plugin after another."""

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}

    def count_plugin(self, plugin: Plugin, path: str) -> None:
        """Count what a plugin uses.

        Raises
        ------
        FieldError
            The profile now uses more of something than the named bound allows.
        """
        for bound, what, count in _uses(plugin):
            taken = self._taken[bound] = self._taken.get(bound, 0) + count
            allowed: int = getattr(limits, bound)
            if taken > allowed:
                message = (
                    f"with {plugin.name} the profile has {taken} {what}; allowed are {allowed} ({bound})"
                )
                raise FieldError(path, message)


def _uses(plugin: Plugin) -> list[tuple[str, str, int]]:
    """Return each bound, what it limits, and how much of it the plugin uses."""
    uses = []
    if isinstance(plugin, StaticFilter):
        names = type(plugin).named is not StaticFilter.named  # its first reason then also comes before all
        count = len(plugin.reasons) + names
        uses.append(("static_reasons_max", "reasons of filters by spec or usage", count))
    if isinstance(plugin, LimitFilter):
        uses.append(("limits_per_profile_max", "limits", plugin.limits_max))
    if isinstance(plugin, ResourceFilter):
        uses.append(("resource_filters_max", "filters of free resources", 1))
    if isinstance(plugin, StaticScore) and plugin.normaliser is not None:
        uses.append(("normalised_scores_max", "scores by spec or usage that are normalised", 1))
    if isinstance(plugin, ResourceScore):
        uses.append(("resource_scores_max", "scores of resources", 1))
        uses.append(("scored_resources_max", "resources in scores", plugin.parts_max))
        uses.append(("score_numbers_max", "numbers in scores", plugin.numbers_max))
    if isinstance(plugin, RelativeScore):
        uses.append(("variance_scores_max", "metrics in scores over all nodes", plugin.metrics_count))
        uses.append(("scored_resources_max", "resources in scores", plugin.parts_max))
    if isinstance(plugin, CountScore):
        uses.append(("count_scores_max", "scores that count pods", 1))
    return uses
