"""Writes docs/plugins.md from the plugins' docstrings: `python -m docs.build.plugin_pages [--check]`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from docs.build.plugin_steps import STEPS
from docs.build.writing import write_or_check
from domain.plugins.base import Plugin, Reason, StaticFilter
from domain.plugins.registry import FILTERS, SCORES, STRATEGIES

PAGE = Path(__file__).parent.parent / "plugins.md"
LABELS = ("Formula", "Arguments", "Reason codes", "Source")
COMMAND = "python -m docs.build.plugin_pages"

_HEAD = f"""# Plugins

Made from the docstrings by `{COMMAND}`; edit those, not this page.

A profile lists filters, which refuse nodes, and scores, which rate them 0..100 and are added up with weights
([profiles](profiles.md)). Names and arguments are those of `KubeSchedulerConfiguration` where the plugin
exists there. *Fields read* are the fields of the pod's template that the answer depends on: pods that agree
in them are interchangeable for the plugin. Scores are real numbers, never truncated. Where an answer
depends on measured usage, the plugin says so. [Write your own](#write-your-own-filter) says how to add one.
"""


def page() -> str:
    """Return the whole page."""
    parts = [_HEAD, "## Filters\n", *_sections(FILTERS)]
    parts += ["## Scores\n", *_sections(SCORES), *_sections(STRATEGIES), STEPS]
    return "\n".join(parts)


def _sections(plugins: Mapping[str, type[Plugin]]) -> Iterator[str]:
    for key, plugin in plugins.items():
        title = plugin.name if key == plugin.name else f"{plugin.name}: {key}"
        yield f"### {title}\n"
        yield "\n".join(_section(plugin)) + "\n"


def _section(plugin: type[Plugin]) -> Iterator[str]:
    texts = described(plugin)
    yield texts["What"] + "\n"
    if "Formula" in texts:
        yield f"- **Formula**: {texts['Formula']}"
    yield f"- **Arguments**: {texts.get('Arguments', 'none')}"
    codes = reason_codes(plugin) or texts.get("Reason codes", "")
    if codes:
        yield f"- **Reason codes**: {codes}"
    read = ", ".join(f"`{field}`" for field in sorted(plugin.reads)) or "none"
    yield f"- **Fields read**: {read}"
    if plugin.reads_usage:
        yield "- **Measured usage**: read"
    yield f"- **Source**: {texts['Source']}"
    file = "/".join(plugin.__module__.split(".")) + ".py"
    yield f"- **File**: [{file}](../{file})"


def described(plugin: type[Plugin]) -> dict[str, str]:
    """Return the parts of a docstring by their label; ``What`` is all that has none."""
    text = " ".join((plugin.__doc__ or "").replace("``", "`").split())
    first, *rest = re.split(rf"\b({'|'.join(LABELS)}): ", text)
    texts = {"What": first.strip()}
    for label, said in zip(rest[::2], rest[1::2], strict=True):
        texts[label] = said.strip()
    return texts


def reason_codes(plugin: type[Plugin]) -> str:
    """Return the reason codes that a filter has whatever its arguments are, and whether evicting could help.

    Where they depend on the arguments, or on the pod, the docstring says them.
    """
    reasons: tuple[Reason, ...] = ()
    if issubclass(plugin, StaticFilter):
        reasons = getattr(plugin, "reasons", ())
    return ", ".join(
        f"`{reason.code}` (evicting pods {'cannot' if reason.unresolvable else 'could'} help)"
        for reason in reasons
    )


def main(arguments: list[str]) -> int:
    """Write the page; with ``--check`` only say whether it is as the docstrings are."""
    return write_or_check(PAGE, page(), arguments, source="the docstrings say", command=COMMAND)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
