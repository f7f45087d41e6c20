"""The profiles in force: the built-in ones, and those that events have set."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from domain.manifests.profile import profile_to_spec
from domain.model.events import ProfileDeleted, ProfileEvent, ProfileUpserted
from domain.model.limits import profiles_max
from domain.model.profiles import Profile, ProfileRevision
from domain.plugins.registry import ProfilePlan
from domain.state.changes import Change, ProfileChanged, Refused, Skipped
from domain.state.versions import is_older, is_stale, newer_of, skip_reason

_CANONICAL = msgspec.json.Encoder(order="deterministic")


class Profiles:
    """Every profile that a pod may name, with its revision and its plan.

    Revisions follow from the log alone. Each change of a name, its deletion included, counts one up; an event
    that says what is in force already changes nothing. ``plans`` holds what is in force and changes in place.

    Parameters
    ----------
    built_in : mapping of str to Profile
        Profiles that exist without any event. An event of the same name replaces one, a deletion brings it
        back.
    """

    def __init__(self, built_in: Mapping[str, Profile]) -> None:
        self._built_in = dict(built_in)
        self._known: dict[str, ProfileRevision] = {}
        self.plans: dict[str, ProfilePlan] = {}
        for name, profile in built_in.items():
            self._put(ProfileRevision(name=name, revision=profile.revision, profile=profile))

    def sent(self) -> list[str]:
        """Return the names of the profiles in force that the log brought."""
        known = self._known.values()
        return [x.name for x in known if x.profile and x.profile is not self._built_in.get(x.name)]

    def apply(self, event: ProfileEvent) -> Change:
        """Apply an event whose profile was checked, and return what it changed.

        Raises
        ------
        FieldError
            The profile makes no sense, and nothing changed. The caller should have checked it.
        """
        match event:
            case ProfileUpserted():
                return self._upsert(event)
            case ProfileDeleted():
                return self._delete(event)

    def restore(self, revision: ProfileRevision) -> None:
        """Restore the latest revision of a name from the ledger.

        Raises
        ------
        FieldError
            The profile makes no sense any more, and nothing changed.
        """
        self._put(revision)

    def _put(self, revision: ProfileRevision) -> None:
        if revision.profile is None:
            self.plans.pop(revision.name, None)
        else:
            self.plans[revision.name] = ProfilePlan(revision.profile)
        self._known[revision.name] = revision

    def _upsert(self, event: ProfileUpserted) -> Change:
        name, known = event.profile.name, self._known.get(event.profile.name)
        if known is not None and is_stale(event.resource_version, known.resource_version):
            return Skipped(skip_reason(event.resource_version, known.resource_version))
        if name not in self.plans and len(self.plans) >= profiles_max:
            return Refused(
                "object.metadata.name",
                f"{len(self.plans)} profiles are in force; allowed are at most {profiles_max} (profiles_max)",
            )
        before = None if known is None else known.resource_version
        return self._change(name, event.profile, newer_of(event.resource_version, before))

    def _delete(self, event: ProfileDeleted) -> Change:
        known = self._known.get(event.name)
        if known is None:
            return Skipped()
        if is_older(event.resource_version, known.resource_version):
            return Skipped("older")
        # Without a version it forgets the known one: nothing else lets a name go on after a wrong version.
        return self._change(event.name, self._built_in.get(event.name), event.resource_version)

    def _change(self, name: str, profile: Profile | None, newest: int | None) -> Change:
        known = self._known.get(name)
        if known is not None and _written(known.profile) == _written(profile):
            if newest == known.resource_version:
                return Skipped()
            self._known[name] = msgspec.structs.replace(known, resource_version=newest)
            return ProfileChanged(self._known[name])
        number = 1 if known is None else known.revision + 1
        if profile is not None:
            profile = msgspec.structs.replace(profile, revision=number)
        revision = ProfileRevision(name=name, revision=number, profile=profile, resource_version=newest)
        self._put(revision)
        return ProfileChanged(revision)


def _written(profile: Profile | None) -> bytes:
    """Return the one written form of a profile: equal bytes mean the same profile."""
    return b"" if profile is None else _CANONICAL.encode(profile_to_spec(profile))
