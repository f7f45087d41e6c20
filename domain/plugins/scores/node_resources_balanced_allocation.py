"""NodeResourcesBalancedAllocation: prefer nodes whose resources fill up evenly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from domain.kernels.arrays import BALANCED, BALANCED_CHANGE, WHOLE
from domain.model.pods import PodTemplate
from domain.plugins.arguments import CPU_AND_MEMORY, Arguments
from domain.plugins.base import ResourceScore, Term, TermPart
from domain.plugins.scored_resources import skipped
from domain.state.resources import ResourceIndex


class Balanced(ResourceScore):
    """Rate how even the used shares of the resources are, or how much more even the pod makes them.

    Formula: ``s = 100 * (1 - std)``, where ``std`` is the population's standard deviation of
    ``min(used / capacity, 1)`` over the resources (for two, half their difference). ``with-pod`` gives ``s``
    with the pod on the node; ``change`` gives ``50 + (50 + s_with - s_without) / 2``: 75 where the pod
    changes nothing. ``used`` sums the requests as they are. A resource that the node does not have is left
    out, and so is one other than cpu, memory and ephemeral storage that the pod does not request. A pod that
    requests none of the resources gets 0 everywhere.

    Arguments: ``variant`` (``change``, the default, or ``with-pod``), ``resources`` (``name``, and ``weight``
    1, which has no effect; default cpu and memory), ``arithmetic`` (``real``, the default, or ``integer``:
    ``s`` and the half of the change are cut to whole numbers, as upstream does).
    Source: kube-scheduler plugin NodeResourcesBalancedAllocation, ``change`` since 1.35.
    """

    name: ClassVar[str] = "NodeResourcesBalancedAllocation"
    reads: ClassVar[frozenset[str]] = frozenset({"requests"})

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        given = Arguments(args, path, ("variant", "resources", "arithmetic"))
        whole = WHOLE if given.whole_numbers() else 0
        with_pod = given.choice("variant", ("change", "with-pod")) == "with-pod"
        self._kind = (BALANCED if with_pod else BALANCED_CHANGE) + whole
        self._resources = given.resources("resources", CPU_AND_MEMORY, weight_max=1)
        self.parts_max = len(self._resources)

    def term(self, template: PodTemplate, resources: ResourceIndex) -> Term:
        """See ``ResourceScore``."""
        wanted = [resource.name for resource in self._resources if not skipped(resource.name, template)]
        if not any(template.requests.get(name) for name in wanted):
            wanted = []
        parts = [TermPart(resources.column(name), 1.0, template.requests.get(name, 0)) for name in wanted]
        return Term(self._kind, tuple(parts))
