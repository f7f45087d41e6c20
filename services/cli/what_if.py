"""`berth replay --profile` and `--with`: what would have been different, as a table, CSV or JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from services.cli import documents, inputs, output
from services.cli.options import CommandError, warn
from services.cli.output import Column
from services.cli.terminal import echo
from services.phrases import plural

if TYPE_CHECKING:
    from services.replay.what_if import Change, Compared, Figures

_COLUMNS = (
    Column("", lambda item: item["what"]),
    Column("AS IT WAS", lambda item: item["was"], right=True),
    Column("WOULD HAVE BEEN", lambda item: item["would"], right=True),
)


def changed(profile: str | None, files: Sequence[str]) -> Change:
    """Return what would have been different, as options name it.

    A profile that is neither a file nor built in is left out: the ledger may have it.
    """
    from domain.manifests.objects import node_from_manifest
    from services.replay.what_if import Change

    nodes = []
    for name in files:
        found = [
            each for value in documents.read_values(name) for each in documents.expand(value, name, "ADDED")
        ]
        given = [each for each in found if _is_node(each.event["object"])]
        if not given:
            raise CommandError(f"{name}: there is no node in it, and --with takes nodes alone")
        if others := len(found) - len(given):
            warn([f"{name}: {plural(others, 'object')} passed over: --with takes nodes alone"])
        for document in given:
            with inputs.at(document.place):
                nodes.append(node_from_manifest(document.event["object"]))
    is_here = profile is not None and (profile == "-" or Path(profile).exists() or is_built_in(profile))
    return Change(inputs.profile_of(profile) if profile is not None and is_here else None, nodes)


def is_built_in(name: str) -> bool:
    """Return whether a profile comes with berth."""
    from domain.model.profiles import BUILT_IN_PROFILES

    return name in BUILT_IN_PROFILES


def check_plot(path: Path) -> None:
    """Refuse what cannot be drawn, before anything is planned."""
    if path.suffix not in (".png", ".svg"):
        raise CommandError(f"--plot {path}: allowed are names that end in .png or .svg")
    if find_spec("matplotlib") is None:
        raise CommandError("--plot needs matplotlib, which is not installed; pip install 'berth[plots]'")


def draw(compared: Compared, path: Path) -> None:
    """Draw both worlds: pods that wait by the devices that they ask for, devices, and what is requested."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "berth"
    from matplotlib import pyplot

    was, would = compared.was, compared.would
    devices = sorted({*was.waiting_by_devices, *would.waiting_by_devices})
    parts: dict[str, tuple[list[str], list[list[float]]]] = {
        "pods waiting, by devices asked for": (
            devices,
            [[of.waiting_by_devices.get(name, 0) for name in devices] for of in (was, would)],
        ),
        "devices at the end": (
            ["free", "stranded"],
            [[of.devices_free, of.devices_stranded] for of in (was, would)],
        ),
        "requested, % of what nodes offer": (
            list(was.used_percent),
            [[of.used_percent.get(name, 0.0) for name in was.used_percent] for of in (was, would)],
        ),
    }
    figure, axes = pyplot.subplots(1, len(parts), figsize=(13, 4), layout="constrained")
    for axis, (title, (names, worlds)) in zip(axes, parts.items(), strict=True):
        for at, (label, values) in enumerate(zip(("as it was", "would have been"), worlds, strict=True)):
            places = [number + 0.4 * at - 0.2 for number in range(len(names))]
            axis.bar(places, values, width=0.4, label=label, color=("#0072B2", "#E69F00")[at])
        axis.set_xticks(range(len(names)), [name.rpartition("/")[2] for name in names])
        axis.set_title(title, fontsize=10)
    axes[0].legend()
    figure.savefig(path, dpi=100, metadata={"Software": None} if path.suffix == ".png" else {"Date": None})
    pyplot.close(figure)


def _is_node(thing: object) -> bool:
    return isinstance(thing, dict) and thing.get("kind") == "Node"


def rows(compared: Compared) -> list[dict[str, str]]:
    """Return the figures of both worlds, a row each."""
    was, would = _figures(compared.was), _figures(compared.would)
    return [
        {"what": name, "was": was.get(name, "0"), "would": would.get(name, "0")}
        for name in dict.fromkeys((*was, *would))
    ]


def _figures(of: Figures) -> dict[str, str]:
    found = {
        "pods placed": str(of.placed_count),
        "pods waiting at the end": str(of.waiting_count),
        "wait p50, s": f"{of.wait_p50_ms / 1000:.3f}",
        "wait p99, s": f"{of.wait_p99_ms / 1000:.3f}",
        "wait max, s": f"{of.wait_max_ms / 1000:.3f}",
    }
    for name, percent in of.used_percent.items():
        found[f"{name} requested, %"] = f"{percent:.2f}"
        found[f"{name} deviation over nodes, %"] = f"{of.deviation_percent[name]:.2f}"
    return {
        **found,
        **{f"waiting for {n} devices": str(count) for n, count in of.waiting_by_devices.items()},
        "devices free at the end": f"{of.devices_free:.2f}",
        "devices stranded at the end": f"{of.devices_stranded:.2f}",
        "nodes nominated": str(of.preemptions_count),
        "pods evicted": str(of.evictions_count),
        "conflicts": str(of.conflicts_count),
    }


def print_compared(compared: Compared, form: str) -> None:
    """Print both worlds."""
    if form == "json":
        import msgspec

        output.print_json(msgspec.to_builtins(compared))
        return
    if form == "csv":
        text = io.StringIO()
        writer = csv.DictWriter(text, ["what", "was", "would"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows(compared))
        echo(text.getvalue().rstrip())
        return
    output.print_table("", _COLUMNS, rows(compared))
    output.say(
        f"\n{compared.moved_count:,} pods would have had another node, over {compared.batches_count:,} "
        f"batches from the checkpoint after batch {compared.checkpoint:,}"
    )
    if compared.unlike_count:
        output.say(
            f"as it was is not exactly what was recorded: {compared.unlike_count:,} of "
            f"{compared.decisions_count:,} decisions are other ones (one planner for all shards)"
        )
