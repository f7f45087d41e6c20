"""Writes docs/colocation-policy.md from the table of fields: `python -m docs.build.policy_page [--check]`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from docs.build.writing import write_or_check
from domain.manifests.colocation_policy import BELOW, FIELDS, TREE, value_of
from domain.model.colocation import DEFAULT_POLICY, OF_ALL_NODES
from domain.model.limits import policies_max

PAGE = Path(__file__).parent.parent / "colocation-policy.md"
EXAMPLE = Path(__file__).parent.parent / "examples" / "policy.yaml"
COMMAND = "python -m docs.build.policy_page"

_OF_ALL = ", ".join(f"`{name}`" for name in OF_ALL_NODES)
_HEAD = f"""# Co-location policies

Made from `domain/manifests/colocation_policy.py` and the defaults of `domain/model/colocation.py` by
`{COMMAND}`; edit those, not this page.

A `CoLocationPolicy` holds all numbers of co-location for some nodes, or for all. It has no namespace, and
comes on `berth.config` like other [configuration objects](events.md#configuration-objects).

```yaml
{EXAMPLE.read_text(encoding="utf-8")}```

```console
$ berth apply -f docs/examples/policy.yaml --wait
$ berth get policies
$ berth describe policy batch
$ berth get policy batch -o jsonpath={{.object}}
$ berth delete policy batch
```

- **Which one holds on a node.** Of the policies whose `nodeSelector` has only labels of the node it is the
  one with the most labels, of equals the first by name. One without `nodeSelector` matches each node. Where
  none matches, the defaults hold. `berth describe node NAME` names it. Policies are not
  merged: what the one that holds leaves out has its default.
- **The same for all nodes** are {_OF_ALL}: only a policy without `nodeSelector` may give them, and they
  hold on nodes of other policies, too. Of several such policies it is the first by name.
- **From when on.** A policy is in force from its place in the log on, until it is deleted. It is folded in
  its place among nodes and pods, and pods are tried when all of a batch is folded.
- **A bad one is refused.** A field that is not known, a value out of bounds or of another form is told with
  its path, and the policy of that name that was in force stays. What is written as `null` counts as left
  out.
- At most {policies_max:,} are in force (`policies_max`). A key with namespaces sends none, and sees all.
- **Versions.** `metadata.resourceVersion` is the producer's, as of all objects. An older one never takes
  the place of a newer one.

The API shows a policy with all fields that it may give, defaults filled in: the `object` of
`GET /v1/config/CoLocationPolicy/batch`. It takes that as a `spec` again.

Percent are text, as `70%`: a bare number is refused, since 0.7 could be meant as a share. A duration is
text, as `60s`, `1m30s` or `100ms`, or a number of seconds. Quantities are those of Kubernetes.
"""

_ABOUT = {
    "estimate": "What a pod is expected to use, until it was measured: its limit where it has one.",
    "view": "What of a node is lent.",
    "suppression": "How the boxes of mid and low pods move: they shrink at once, and grow by steps.",
    "eviction": "When pods are ended on their node.",
    "hotSpot": "When a node is hot, and how it is relieved.",
    "replicas": "How many replicas of a hosted workload there should be.",
    "prices": "What use costs.",
    "reporting": "What the agent of a node sends, and when.",
}
"""What each section is about, above its table."""


def page() -> str:
    """Return the whole page."""
    parts = [_HEAD]
    for section in TREE:
        parts += [f"## `{section}`\n", _ABOUT[section], "", *_table(section), ""]
    return "\n".join(parts)


def _table(section: str) -> Iterator[str]:
    yield "| field | value | default | |"
    yield "|---|---|---|---|"
    for field in FIELDS:
        if field.name.partition(".")[0] == section:
            default = value_of(DEFAULT_POLICY, field)
            shown = "–" if default is None else f"`{default}`"
            below = [f"below `{upper}`" for lower, upper in BELOW if lower == field.name]
            allowed = ", ".join((field.form.allowed, *below))
            yield f"| `{field.name}` | {allowed} | {shown} | {field.meaning} |"


def main(arguments: list[str]) -> int:
    """Write the page; with ``--check`` only say whether it is as the table is."""
    return write_or_check(PAGE, page(), arguments, source="the table says", command=COMMAND)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
