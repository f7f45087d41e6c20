"""Notices of `berth apply` and `berth plan`: what objects ask for in vain, a line per code with a count."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from domain.engine.program import warnings_of
from domain.manifests.codes import UNSUPPORTED, ignored_in_words
from domain.model.config import PodGroup
from domain.model.decisions import Attempt
from domain.model.events import (
    ConfigUpserted,
    Event,
    NodeUpserted,
    PodUpserted,
    ProfileEvent,
    ProfileUpserted,
)
from domain.model.nodes import NodeSpec
from domain.model.profiles import BUILT_IN_PROFILES
from domain.plugins.registry import ProfilePlan

_SOFT = "PreferNoSchedule"
_SOFT_SCORE = "TaintToleration"


class Notices:
    """Counts what is not honoured: per code the number of objects, and the first of them."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], tuple[int, str]] = {}
        self._told: set[tuple[str, str]] = set()
        self._plans: dict[str, ProfilePlan] = {
            name: ProfilePlan(profile) for name, profile in BUILT_IN_PROFILES.items()
        }

    def note_event(self, event: Event | ProfileEvent | None) -> None:
        """Look at an object on its way into the log. It may name built-in profiles and those seen before."""
        match event:
            case PodUpserted(pod=pod) if not pod.node_name:
                held = [f"unsupported:{what}" for what in pod.template.unsupported]
                warnings = warnings_of(self._plans.get(pod.template.profile), pod.template)
                self.add("pod", pod.key, [*held, *_set(warnings)])
            case NodeUpserted(node=node):
                self.note_node(node, self._plans.values())
            case ProfileUpserted(profile=profile):
                self._plans[profile.name] = ProfilePlan(profile)
            case ConfigUpserted(content=PodGroup(ignored=fields)):
                named = f"{event.namespace}/{event.name}"
                self.add("PodGroup", named, [f"field:spec.{field}" for field in fields])
            case _:
                pass

    def note_node(self, node: NodeSpec, plans: Iterable[ProfilePlan]) -> None:
        """Look at a node that may get pods of these profiles."""
        if any(taint.effect == _SOFT for taint in node.taints) and not any(
            use.plugin.name == _SOFT_SCORE for plan in plans for use in plan.scores
        ):
            self.add("node", node.name, [_SOFT])

    def note_attempt(self, pod: str, attempt: Attempt) -> None:
        """Look at a planned pod. Whatever holds it is among its reasons."""
        self.add("pod", pod, _set(attempt.warnings))

    def add(self, noun: str, example: str, codes: Iterable[str]) -> None:
        """Count an object under each code."""
        for code in codes:
            count, first = self._found.get((noun, code), (0, example))
            self._found[noun, code] = (count + 1, first)

    def lines(self) -> list[str]:
        """Return a line per code that was not reported before."""
        fresh = {key: each for key, each in self._found.items() if key not in self._told}
        self._told.update(fresh)
        return [_line(noun, code, *each) for (noun, code), each in fresh.items()]


def _set(warnings: Sequence[str] | msgspec.UnsetType) -> Sequence[str]:
    return () if warnings is msgspec.UNSET else warnings


def _line(noun: str, code: str, count: int, example: str) -> str:
    subject = f"{count:,} {noun}s, such as {example}" if count > 1 else f"{noun} {example}"
    if code == _SOFT:
        return f"{subject}: the taint effect {_SOFT} only counts in a profile with the score {_SOFT_SCORE}"
    kind, _, what = code.partition(":")
    if kind == "field":
        return f"{subject}: not looked at: {what}"
    if kind == "unsupported":
        return f"{subject}: not honoured: {UNSUPPORTED[what]}, so it waits ({code})"
    return f"{subject}: not looked at: {ignored_in_words(code)} ({code})"
