"""Pages of profiles, shards, workers, namespaces and the audit."""

from __future__ import annotations

from collections.abc import Sequence

from services.console import texts
from services.console.asking import Asking, NotAnswered
from services.console.blocks import Block, Cell, Facts, Field, Json, Link, Raw, Table, Text, View
from services.console.here import Here
from services.console.page import LIST, Page
from services.console.pages_decisions import decisions_table
from services.console.pages_pods import pods_table
from services.console.stories import story

# ---------------------------------------------------------------------------------------------- profiles


async def _gather_profiles(ask: Asking) -> Json:
    return {
        "profiles": await ask.get("/v1/profiles", at=ask.at, **ask.asked("limit", "cursor")),
        "shadow": await ask.get_or_none("/v1/shadow"),
    }


def _view_profiles(found: Json, here: Here) -> View:
    rows = [
        (
            Cell(each["name"], here.to("profiles", each["name"])),
            texts.number(each["revision"]),
            Cell("built in" if each["built_in"] else "by an event"),
            texts.time(each["since"]),
            texts.text(each["sent_by"]),
        )
        for each in found["profiles"]["items"]
    ]
    columns = texts.columns("Profile", "#Revision", "Came", "Since", "Sent by")
    table = Table(caption="Profiles in force", columns=columns, rows=rows)
    blocks: list[Block] = [texts.sortable(here, table), texts.pager(here, found["profiles"])]
    shadow = (found["shadow"] or {}).get("items") or []
    if shadow:
        blocks.append(Raw(title="How shadow profiles compare", text=texts.as_text(shadow)))
    return View(title="Profiles", blocks=blocks)


async def _gather_profile(ask: Asking) -> Json:
    name = ask.names["name"]
    return {
        "profile": await ask.get("/v1/profiles", name, **ask.asked("revision")),
        "history": await ask.get_or_none(
            "/v1/history/profiles", name, order="newest", limit=50, **ask.asked("cursor")
        ),
        "decisions": await ask.get("/v1/decisions", profile=name, order="newest", limit=10),
    }


def _view_profile(found: Json, here: Here) -> View:
    profile = found["profile"]
    spec = profile["spec"] or {}
    blocks: list[Block] = [
        Facts(
            title="What it is",
            items=[
                ("Revision", texts.number(profile["revision"])),
                ("In force", Cell("yes", look="good") if profile["in_force"] else Cell("no", look="bad")),
                ("Came", Cell("built in" if profile["built_in"] else "by an event")),
                ("Since", texts.time(profile["since"])),
                ("Sent by", texts.text(profile["sent_by"])),
            ],
        ),
        Table(
            caption="Scores",
            columns=texts.columns("Score", "#Weight"),
            rows=[
                (Cell(each["name"]), texts.number(each.get("weight", 1))) for each in _named(spec, "scores")
            ],
        ),
        Table(
            caption="Filters, in their order",
            columns=texts.columns("Filter"),
            rows=[(Cell(each["name"]),) for each in _named(spec, "filters")],
        ),
        Raw(title="The whole of it", text=texts.as_text(spec)),
        story(here, "How it changed", found["history"]),
        Table(
            caption="Its revisions",
            columns=texts.columns("#Revision", "Since", "Sent by"),
            rows=[
                (
                    Cell(
                        str(each["revision"]), here.to("profiles", profile["name"], revision=each["revision"])
                    ),
                    texts.time(each["since"]),
                    texts.text(each["sent_by"]),
                )
                for each in profile["revisions"]
            ],
        ),
        decisions_table(here, "What it decided last", found["decisions"]["items"]),
    ]
    crumbs = [here.link("Profiles", "profiles")]
    return View(title=f"Profile {profile['name']}", crumbs=crumbs, blocks=blocks)


def _named(spec: Json, what: str) -> list[Json]:
    """Return the plugins of a spec, which are names or objects with one."""
    return [{"name": each} if isinstance(each, str) else each for each in spec.get(what) or []]


# -------------------------------------------------------------------------------------- shards and workers


def shards_table(here: Here, shards: Sequence[Json]) -> Table:
    """Return which worker has which shard, and how far each shard is behind."""
    rows = [
        (
            texts.shard(here, each["shard"]),
            _worker(here, each["owner"]),
            texts.number(each["lag_records"]),
            texts.number(each["lag_seconds"], 1),
            texts.number(each["decisions"]),
            texts.number(each["decisions_per_second"], 1),
            texts.number(each["conflicts"]),
            texts.number(each["decisions"] - each["published"]),
            Cell(each["alarm"], look="bad") if each["alarm"] else Cell("none", look="muted"),
        )
        for each in shards
    ]
    titles = (
        "Shard", "Owner", "#Records behind", "#Seconds behind", "#Decisions", "#Decisions a second",
        "#Conflicts", "#To publish", "Alarm",
    )  # fmt: skip
    return Table(caption="Shards", columns=texts.columns(*titles), rows=rows, empty="There are no shards.")


def _worker(here: Here, name: str | None) -> Cell:
    return Cell("no worker", look="bad") if name is None else Cell(name, here.to("workers", name))


async def _gather_shards(ask: Asking) -> Json:
    return {"shards": await ask.get("/v1/shards")}


def _view_shards(found: Json, here: Here) -> View:
    shards = found["shards"]["items"]
    blocks: list[Block] = [*_orphans(shards), texts.sortable(here, shards_table(here, shards))]
    return View(title="Shards", blocks=blocks)


def _orphans(shards: Sequence[Json]) -> list[Block]:
    """Return a warning where a shard has no owner."""
    without = [str(each["shard"]) for each in shards if each["owner"] is None]
    if not without:
        return []
    lines = [
        f"No worker holds shard {', '.join(without)}: its pods wait, and its events stay in the log.",
        "Start `berth worker`, or `berth up`; a worker that is there takes it within seconds.",
    ]
    return [Text(title="Without an owner", lines=lines, look="bad")]


async def _gather_shard(ask: Asking) -> Json:
    number = ask.names["number"]
    shards = (await ask.get("/v1/shards"))["items"]
    return {
        "shard": next((each for each in shards if str(each["shard"]) == number), None),
        "history": await ask.get(
            "/v1/history/shards", number, order="newest", limit=50, **ask.asked("cursor")
        ),
        "owners": await ask.get_or_none("/v1/owners", shard=number, limit=20),
    }


def _view_shard(found: Json, here: Here) -> View:
    shard = found["shard"]
    blocks: list[Block] = []
    if shard is not None:
        blocks += [*_orphans([shard]), _shard_facts(here, shard)]
        rows = [
            (Cell(each["topic"]), texts.number(each["partition"]), texts.number(each["next_offset"]))
            for each in shard["offsets"]
        ]
        columns = texts.columns("Topic", "#Partition", "#Next offset")
        blocks.append(Table(caption="How far it has read", columns=columns, rows=rows))
    blocks.append(story(here, "What happened to it", found["history"]))
    owners = (found["owners"] or {}).get("items", [])
    spans = [(_worker(here, each["owner"]), *_span(each)) for each in owners]
    columns = texts.columns("Worker", "#Epoch", "From", "To")
    blocks.append(Table(caption="Workers that owned it", columns=columns, rows=spans))
    number = here.path.rpartition("/")[2]
    links = [
        here.link("Decisions of the shard", "decisions", shard=number),
        here.link("What waits in it", "pending", shard=number),
    ]
    blocks.append(Text(lines=[], links=links))
    return View(title=f"Shard {number}", crumbs=[here.link("Shards", "shards")], blocks=blocks)


def _span(owner: Json) -> tuple[Cell, Cell, Cell]:
    return texts.number(owner["epoch"]), texts.time(owner["from"]), texts.time(owner["to"])


def _shard_facts(here: Here, shard: Json) -> Facts:
    return Facts(
        title="How it stands",
        items=[
            ("Owner", _worker(here, shard["owner"])),
            ("Since", texts.time(shard["owned_since"])),
            ("Lease until", texts.time(shard["lease_until"])),
            ("Epoch", texts.number(shard["epoch"])),
            ("Records behind", texts.number(shard["lag_records"])),
            ("Seconds behind", texts.number(shard["lag_seconds"], 1)),
            ("Behind others (s)", texts.number(shard["journal_lag_seconds"], 1)),
            ("Decisions", texts.number(shard["decisions"])),
            ("Published", texts.number(shard["published"])),
            ("Relay", texts.text(shard["relay"])),
            ("Dead letters", texts.number(shard["deadletters"])),
            ("Log time", texts.time(shard["log_time"])),
            ("Alarm", texts.text(shard["alarm"])),
        ],
    )


def _workers_table(here: Here, workers: Sequence[Json]) -> Table:
    rows = [
        (
            _worker(here, each["name"]),
            Cell(each["state"], look="good" if each["state"] == "ready" else "bad"),
            [texts.shard(here, number) for number in each["shards"]] or [texts.NOTHING],
            texts.number(each["decisions_per_second"], 1),
            texts.number(each["moved"]),
            texts.number(each["conflicts"]),
            texts.time(each["started"]),
            texts.time(each["seen"]),
            texts.time(each["stopped"]),
            Cell(each["build"], look="code"),
        )
        for each in workers
    ]
    titles = (
        "Worker", "State", "Shards", "#Decisions a second", "#Moved", "#Conflicts", "Started", "Seen",
        "Stopped", "Build",
    )  # fmt: skip
    empty = "No worker was heard of in the last hour: start `berth worker`, or `berth up`."
    return Table(caption="Workers", columns=texts.columns(*titles), rows=rows, empty=empty)


async def _gather_workers(ask: Asking) -> Json:
    return {
        "workers": await ask.get("/v1/workers", **ask.asked("since")),
        "owners": await ask.get("/v1/owners", limit=50),
    }


def _view_workers(found: Json, here: Here) -> View:
    table = _workers_table(here, found["workers"]["items"])
    rows = [
        (texts.shard(here, each["shard"]), _worker(here, each["owner"]), *_span(each))
        for each in found["owners"]["items"]
    ]
    columns = texts.columns("Shard", "Worker", "#Epoch", "From", "To")
    owners = Table(caption="Workers that owned each shard", columns=columns, rows=rows)
    fields = [Field("since", "Heard of since", "1h")]
    controls = [texts.filters(here, "Filter", fields)]
    return View(title="Workers", controls=controls, blocks=[texts.sortable(here, table), owners])


async def _gather_worker(ask: Asking) -> Json:
    workers = await ask.get("/v1/workers", since="30d")
    owners = await ask.get("/v1/owners", limit=500)
    name = ask.names["name"]
    mine = [each for each in workers["items"] if each["name"] == name]
    owned = [each for each in owners["items"] if each["owner"] == name]
    if not mine and not owned:
        raise _no_worker(name)
    return {"name": name, "workers": mine, "owners": owned}


def _no_worker(name: str) -> NotAnswered:
    message = f"no worker {name[:100]!a} was heard of in the last 30 days, and none owned a shard lately"
    return NotAnswered.of(404, "not-found", message)


def _view_worker(found: Json, here: Here) -> View:
    rows = [
        (
            texts.shard(here, each["shard"]),
            texts.number(each["epoch"]),
            texts.time(each["from"]),
            texts.time(each["to"]),
        )
        for each in found["owners"]
    ]
    columns = texts.columns("Shard", "#Epoch", "From", "To")
    owned = Table(caption="Shards that it owned", columns=columns, rows=rows)
    crumbs = [here.link("Workers", "workers")]
    blocks = [_workers_table(here, found["workers"]), owned]
    return View(title=f"Worker {found['name']}", crumbs=crumbs, blocks=blocks)


# --------------------------------------------------------------------------------- namespaces and the audit


async def _gather_namespace(ask: Asking) -> Json:
    name = ask.names["name"]
    return {
        "name": name,
        "pods": await ask.get("/v1/pods", namespace=name, at=ask.at, **ask.asked("limit", "cursor")),
        "gangs": await ask.get("/v1/gangs", namespace=name, at=ask.at, limit=50),
        "decisions": await ask.get(
            "/v1/decisions", namespace=name, order="newest", limit=20, until=ask.until
        ),
        "config": await ask.get("/v1/config", namespace=name, at=ask.at, limit=100),
        "evicted": await ask.get(
            "/v1/decisions", namespace=name, outcome="evicted", order="newest", limit=10, until=ask.until
        ),
    }


def _view_namespace(found: Json, here: Here) -> View:
    name = found["name"]
    rows = [
        (Cell(each["kind"]), Cell(each["name"]), texts.time(each["since"]), texts.text(each["sent_by"]))
        for each in found["config"]["items"]
    ]
    config = Table(
        caption="Its configuration", columns=texts.columns("Kind", "Name", "Since", "Sent by"), rows=rows
    )
    gangs = [
        (
            texts.gang(here, f"{name}/{each['name']}"),
            texts.number(each["placed"]),
            texts.number(each["waiting"]),
        )
        for each in found["gangs"]["items"]
    ]
    blocks: list[Block] = [
        texts.sortable(here, pods_table(here, "Its pods", found["pods"]["items"])),
        texts.pager(here, found["pods"]),
        Table(caption="Its gangs", columns=texts.columns("Gang", "#Placed", "#Waiting"), rows=gangs),
        decisions_table(here, "Its evicted pods, and the pods they made room for", found["evicted"]["items"]),
        decisions_table(here, "What was decided last", found["decisions"]["items"]),
        config,
    ]
    links = [
        here.link("Those that wait", "pods", namespace=name, phase="pending"),
        here.link("All decisions", "decisions", namespace=name),
    ]
    return View(title=f"Namespace {name}", blocks=[Text(lines=[], links=links), *blocks])


async def _gather_audit(ask: Asking) -> Json:
    asked = ask.asked("key", "status", "since", "until", "limit", "cursor")
    return {
        "accesses": await ask.get("/v1/accesses", **asked),
        "deadletters": await ask.get("/v1/deadletters"),
    }


def _view_audit(found: Json, here: Here) -> View:
    rows = [
        (
            texts.time(each["at"]),
            texts.text(each["caller"]),
            Cell(each["address"]),
            Cell(each["method"]),
            Cell(each["target"] or each["route"], look="code"),
            Cell(str(each["status"]), look="bad" if each["status"] >= 400 or not each["status"] else "good"),
            texts.text(each["code"]),
            texts.number(each["times"]),
            texts.number(each["duration_ms"]),
        )
        for each in found["accesses"]["items"]
    ]
    titles = ("At", "Caller", "Address", "Method", "Asked", "Status", "Code", "#Times", "#Slowest (ms)")
    table = Table(caption="Who asked for what", columns=texts.columns(*titles), rows=rows)
    dead = [
        (
            Cell(each["id"]), texts.time(each["at"]),
            Cell(f"{each['topic']}/{each['partition']}@{each['offset']}"),
            texts.text(each["key"]), Cell(each["code"]), Cell(f"{each['path']}: {each['message']}"),
            texts.text(each["sent_by"]),
        )
        for each in found["deadletters"]["items"]
    ]  # fmt: skip
    letters = Table(
        caption="Records that could not be accepted, the latest",
        columns=texts.columns("Id", "At", "Record", "Key", "Code", "What is wrong", "Sent by"),
        rows=dead,
    )
    fields = [
        Field("key", "Key"),
        Field("status", "Status"),
        Field("since", "Since"),
        Field("until", "Until"),
    ]
    said = "An audit asks the ledger whether its invariants hold; it takes seconds."
    links = [Link("Audit the ledger now", here.to("audit", "ledger"))]
    blocks: list[Block] = [
        Text(lines=[said], links=links),
        texts.sortable(here, table),
        texts.pager(here, found["accesses"]),
        letters,
    ]
    controls = [texts.filters(here, "Filter", fields)]
    return View(title="Audit", controls=controls, blocks=blocks, is_live=False)


async def _gather_ledger(ask: Asking) -> Json:
    return await ask.get("/v1/audit")


def _view_ledger(found: Json, here: Here) -> View:
    said = f"{found['invariants']} invariants were asked, {found['decisions']:,} decisions looked at."
    look = "good" if found["ok"] else "bad"
    title = "All invariants hold" if found["ok"] else "Something does not hold"
    blocks: list[Block] = [
        Text(title=title, lines=[said, f"It took {texts.seconds(found['seconds'])}."], look=look),
        Table(
            caption="What does not hold",
            columns=texts.columns("Invariant", "Says", "Warning", "#Rows"),
            rows=[
                (Cell(each["name"]), Cell(each["says"]), Cell("yes" if each["warning"] else "no"),
                 texts.number(len(each["rows"])))
                for each in found["broken"]
            ],
            empty="Everything holds.",
        ),
        Raw(title="All of it", text=texts.as_text(found)),
    ]  # fmt: skip
    crumbs = [here.link("Audit", "audit")]
    return View(title="Audit of the ledger", crumbs=crumbs, blocks=blocks, is_live=False)


PAGES = (
    Page("/profiles", _gather_profiles, _view_profiles, LIST),
    Page("/profiles/{name}", _gather_profile, _view_profile, ("revision", "cursor"), is_timed=False),
    Page("/shards", _gather_shards, _view_shards, ("sort",), is_timed=False),
    Page("/shards/{number}", _gather_shard, _view_shard, ("cursor",), is_timed=False),
    Page("/workers", _gather_workers, _view_workers, ("since", "sort", "limit"), is_timed=False),
    Page("/workers/{name}", _gather_worker, _view_worker, is_timed=False),
    Page("/namespaces/{name}", _gather_namespace, _view_namespace, LIST),
    Page("/audit", _gather_audit, _view_audit, ("key", "status", "since", "until", *LIST), is_timed=False),
    Page("/audit/ledger", _gather_ledger, _view_ledger, is_timed=False),
)
