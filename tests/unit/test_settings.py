"""Has every setting a default of its declared type, and does its text read back as the same value?"""

from __future__ import annotations

import typing

import pytest
from pydantic import ConfigDict, TypeAdapter

from domain.model import limits
from services.config import SETTINGS, Settings
from services.setting import Setting

_TYPES = typing.get_type_hints(Settings)
_STRICT = ConfigDict(strict=True, arbitrary_types_allowed=True)


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda each: each.field)
@pytest.mark.parametrize("settings", [Settings(), Settings.from_env({})], ids=["made", "read"])
def test_a_value_that_nobody_set_is_of_the_declared_type(settings: Settings, setting: Setting) -> None:
    TypeAdapter(_TYPES[setting.field], config=_STRICT).validate_python(getattr(settings, setting.field))


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda each: each.field)
def test_the_default_that_is_shown_is_the_one_that_counts(setting: Setting) -> None:
    described = {"kafka_writers", "shards", "worker_name", "dir"}  # what they are by default is said in words
    if setting.default and setting.field not in described:
        assert setting.parse(setting.default) == getattr(Settings(), setting.field)


def test_the_embedded_log_keeps_what_it_holds_as_long_as_tombstones_last() -> None:
    assert Settings().embedded_log_hours == limits.tombstone_hours
