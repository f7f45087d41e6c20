"""Writes docs/manifests.md from the table of fields: `python -m docs.build.manifest_pages [--check]`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from docs.build.writing import write_or_check
from domain.manifests.fields import BY_PROFILE, SHAPES, Shape, Treatment

PAGE = Path(__file__).parent.parent / "manifests.md"
COMMAND = "python -m docs.build.manifest_pages"

_HEAD = f"""# Manifests

Made from `domain/manifests/fields.py` by `{COMMAND}`; edit that, not this page.

berth reads Pods and Nodes as Kubernetes writes them. This page says what becomes of each of their fields
(those of Kubernetes 1.36):

- **honoured**: it counts.
- **held**: the pod asks for something that berth does not have. It is not placed in a way that it did not ask
  for: it waits, with the reason `unsupported:<code>`.
- **ignored**: it could matter, mostly as a preference, and berth does not look at it. The pod is placed, and
  the code `ignored:<code>` stands among the `warnings` of its decision, in `berth explain` and in the
  API's answers.
- **no matter**: where a pod goes does not depend on it. This holds as long as berth neither evicts nor
  resizes pods.

`berth apply` and `berth plan` name all of it: a line per code with the number of pods, and each field that
neither Kubernetes nor berth knows.

A pod that runs already (`spec.nodeName`) counts on its node whatever it asks for.
"""


_TAIL = """
## Where berth differs from kube-scheduler

Both of these are on purpose, and neither decides whether a pod fits.

- **The size of an image.** Nodes may report different sizes of one image. kube-scheduler takes that of the
  node which it saw first, so its answer depends on when it started. berth takes each node's own.
- **Resources of the pod as a whole** (`spec.resources`) in the score NodeResourcesFit. kube-scheduler counts
  them in its filter and in NodeResourcesBalancedAllocation, but in this score only what the containers ask
  for. berth counts them everywhere.
"""


def page() -> str:
    """Return the whole page."""
    parts = [_HEAD]
    for shape in SHAPES:
        parts += [f"## {shape.path}\n", *_table(shape), ""]
    parts += ["## What depends on the profile\n"]
    parts += ["Some fields are ignored where the [profile](profiles.md) that the pod names lacks a plugin.\n"]
    parts += ["| field | plugin | without it |", "|---|---|---|"]
    parts += [f"| {field} | {plugin} | `{code}` |" for code, field, plugin in BY_PROFILE]
    parts += ["", "## Labels\n"]
    parts += ["`berth.io/cluster` and `berth.io/role` are honoured ([events](events.md)). Another label"]
    parts += ["asks a scheduler plugin for what berth does not have.\n"]
    parts += ["| label | what becomes of it |", "|---|---|"]
    return "\n".join([*parts, _TAIL])


def _table(shape: Shape) -> Iterator[str]:
    yield "| field | what becomes of it | |"
    yield "|---|---|---|"
    for field in shape.fields:
        if field.treatment is not Treatment.NONE:
            codes = ", ".join(f"`{code}`" for code in field.codes)
            said = f"{field.treatment}: {codes}" if codes else field.treatment
            yield f"| `{field.name}` | {said} | {field.note} |"
    others = [f"`{field.name}`" for field in shape.fields if field.treatment is Treatment.NONE]
    if others:
        yield f"\nNo matter: {', '.join(others)}."


def main(arguments: list[str]) -> int:
    """Write the page; with ``--check`` only say whether it is as the table is."""
    return write_or_check(PAGE, page(), arguments, source="the table says", command=COMMAND)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
