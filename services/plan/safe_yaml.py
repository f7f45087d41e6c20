"""Parses YAML of strangers: what a small text can blow up to is bounded, and what is wrong is named."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

DEPTH_MAX = 500
"""Levels of nesting. No object of Kubernetes has thirty; the parser in C dies of some 30,000."""

_base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class TooDeep(yaml.YAMLError):
    """The document is nested deeper than ``DEPTH_MAX``."""


class TooMany(yaml.YAMLError):
    """Aliases make more of the document than it may hold."""


class _Loader(_base):  # type: ignore[misc]
    """The safe loader, with bounds where it has none."""

    def __init__(self, text: str, pairs_max: int) -> None:
        super().__init__(text)
        self._depth = 0
        self._pairs_left = pairs_max

    def descend_resolver(self, parent: Any, index: Any) -> None:
        """Count a level on the way down: the composer calls this for every node that is no alias."""
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise TooDeep
        super().descend_resolver(parent, index)

    def ascend_resolver(self) -> None:
        """Count a level on the way up."""
        self._depth -= 1
        super().ascend_resolver()

    def flatten_mapping(self, node: Any) -> None:
        """Merge what `<<` names, within bounds: merges of merges multiply before anything is built."""
        for key, value in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                merged = value.value if isinstance(value, yaml.SequenceNode) else [value]
                self._pairs_left -= sum(len(each.value) for each in merged)
                if self._pairs_left < 0:
                    raise TooMany
        super().flatten_mapping(node)


def load_all(text: str, pairs_max: int) -> Iterator[Any]:
    """Yield the documents of a text. All merges together may copy ``pairs_max`` pairs of key and value.

    Raises
    ------
    yaml.YAMLError
        The text is not YAML, or one of the two bounds is reached, or a value is not what its tag says.
    """
    loader = _Loader(text, pairs_max)
    try:
        while loader.check_data():
            yield loader.get_data()
    except (ValueError, AttributeError, TypeError, OverflowError) as error:
        # The constructors of PyYAML let these through: a date of month 13, `!!int abc`, 5,000 digits.
        raise yaml.constructor.ConstructorError(problem=f"a value is wrong: {error}") from None
    finally:
        loader.dispose()
