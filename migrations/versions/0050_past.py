"""The past: from which batch to which each fact of the ledger held, and views of all tables as of a moment.

A fact names the batch that began it, by the shard whose journal counts the batch, and the batch that ended
it. The views in the schema ``past`` have the names and columns of the tables, so that the same queries answer
about now and about then (docs/adr/0043). They read the moment from two settings of the session, arrays with
an entry per shard: ``berth.batches``, the last batch of its journal that counts, and ``berth.seqs``, the
number of its first decision that does not.
"""

from __future__ import annotations

from alembic import op

revision = "0050"
down_revision = "0049"
branch_labels = None
depends_on = None
works_from = "0050"  # a build of before would not say which batch began or ended a fact

_TABLES = """
ALTER TABLE placements ADD COLUMN opened_by integer, ADD COLUMN opened_batch bigint,
    ADD COLUMN closed_by integer, ADD COLUMN closed_batch bigint;
CREATE INDEX placements_closed ON placements (closed_by, closed_batch) WHERE closed_batch IS NOT NULL;
ALTER TABLE pending ADD COLUMN added_by integer, ADD COLUMN added_batch bigint;
ALTER TABLE pending_groups ADD COLUMN begun_by integer, ADD COLUMN begun_batch bigint;
ALTER TABLE node_specs ADD COLUMN set_by integer, ADD COLUMN set_batch bigint;
ALTER TABLE config_objects ADD COLUMN set_by integer, ADD COLUMN set_batch bigint;
ALTER TABLE profiles ADD COLUMN set_by integer, ADD COLUMN set_batch bigint;
ALTER TABLE group_attempts ADD COLUMN noted_by integer, ADD COLUMN noted_batch bigint;
CREATE INDEX journal_log_time ON journal (shard, log_time_ms, position);
CREATE INDEX journal_shard_position ON journal (shard, position);
CREATE TABLE past_pending (
    removed_by integer NOT NULL,
    removed_batch bigint NOT NULL,
    pod_uid text NOT NULL,
    shard integer NOT NULL,
    namespace text NOT NULL,
    name text NOT NULL,
    signature bytea NOT NULL,
    labels text,
    arrival bigint NOT NULL,
    since_ms bigint NOT NULL,
    life text,
    gang text,
    added_by integer,
    added_batch bigint,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (removed_by, removed_batch, pod_uid, shard)
);
CREATE INDEX past_pending_pod ON past_pending (namespace, name);
CREATE INDEX past_pending_group ON past_pending (shard, signature);
CREATE TABLE past_labels (
    shard integer NOT NULL,
    seq bigint NOT NULL,
    until_by integer NOT NULL,
    until_batch bigint NOT NULL,
    labels text,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (shard, seq, until_by, until_batch)
);
CREATE TABLE past_groups (
    shard integer NOT NULL,
    signature bytea NOT NULL,
    begun_by integer,
    begun_batch bigint,
    emptied_by integer NOT NULL,
    emptied_batch bigint NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (shard, signature, emptied_by, emptied_batch)
);
CREATE TABLE past_config (
    kind text NOT NULL,
    namespace text NOT NULL,
    name text NOT NULL,
    object json,
    resource_version bigint,
    at_ms bigint NOT NULL,
    sent_by text,
    set_by integer,
    set_batch bigint,
    until_by integer NOT NULL,
    until_batch bigint NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (kind, namespace, name, until_by, until_batch)
);
CREATE TABLE past_reach (
    id smallint PRIMARY KEY CONSTRAINT past_reach_one CHECK (id = 1),
    position bigint NOT NULL
);
INSERT INTO past_reach SELECT 1, coalesce(max(position), 0) FROM journal;
"""
_ABOUT = {
    "placements.opened_by": "the shard whose journal has the batch that opened it; null: it is older",
    "placements.opened_batch": "that batch",
    "placements.closed_by": "the shard whose journal has the batch that closed it",
    "placements.closed_batch": "that batch",
    "pending.added_by": "the shard whose journal has the batch that added it; null: it is older",
    "pending.added_batch": "that batch",
    "node_specs.set_by": "the shard whose journal has the batch that set it; null: it is older",
    "node_specs.set_batch": "that batch",
    "config_objects.set_by": "the shard whose journal has the batch that set it; null: it is older",
    "config_objects.set_batch": "that batch",
    "profiles.set_by": "the shard whose journal has the batch that set it; null: it is older",
    "profiles.set_batch": "that batch",
    "group_attempts.noted_by": "the shard whose journal has the batch that noted it; null: it is older",
    "group_attempts.noted_batch": "that batch",
    "past_pending": "pods that waited, until the batch that removed them",
    "past_labels": "labels that an open placement had, until the batch that changed them",
    "pending_groups.begun_by": "the shard whose journal has the batch that refused it first; null: older",
    "pending_groups.begun_batch": "that batch",
    "past_groups": "from which batch to which there was a reason why a group waits",
    "past_config": "configuration objects as they were, until the batch that changed or removed them",
    "past_reach": "the last row of the journal of which the past is not known; one row",
}

_SETTINGS = ("batches", "seqs")

# A journal of which no row was pruned begins at 1; of any other, what came before its first row is not known.
_REACH = """
CREATE FUNCTION past.reach() RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT greatest((SELECT position FROM public.past_reach), coalesce(max(f.position) - 1, 0))
    FROM public.shards s CROSS JOIN LATERAL (
        SELECT batch, position FROM public.journal j WHERE j.shard = s.shard ORDER BY batch LIMIT 1
    ) AS f WHERE f.batch > 1
$$
"""
_POSITION_AT = """
CREATE FUNCTION past.position_at(at_ms bigint) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT coalesce(min(f.position) - 1, (SELECT max(position) FROM public.journal), 0)
    FROM public.shards s CROSS JOIN LATERAL (
        SELECT position FROM public.journal j WHERE j.shard = s.shard AND j.log_time_ms > at_ms
        ORDER BY j.log_time_ms, j.position LIMIT 1
    ) AS f
$$
"""
# The last rows say up to where the shards of their workers had counted. Of a shard that decided nothing then,
# the next row that does says it; where none follows, it is as now.
_CUT = """
CREATE FUNCTION past.cut(upto bigint)
RETURNS TABLE (shard integer, batch bigint, log_time_ms bigint, seq bigint) LANGUAGE sql STABLE AS $$
    WITH said AS MATERIALIZED (
        SELECT DISTINCT ON (e.key) e.key::int AS shard, (e.value->>1)::bigint AS seq
        FROM public.journal j CROSS JOIN LATERAL json_each(j.seqs) AS e
        WHERE j.position <= upto AND j.position > upto - 1000 ORDER BY e.key, j.position DESC
    ), quiet AS MATERIALIZED (
        SELECT s.shard FROM public.shards s LEFT JOIN said USING (shard)
        WHERE said.shard IS NULL AND s.seq_next > 1
    ), behind AS MATERIALIZED (
        SELECT DISTINCT ON (e.key) e.key::int AS shard, (e.value->>0)::bigint AS seq
        FROM public.journal j CROSS JOIN LATERAL json_each(j.seqs) AS e
        WHERE j.position > upto AND EXISTS (SELECT FROM quiet) ORDER BY e.key, j.position
    )
    SELECT s.shard, coalesce(
            next.batch - 1, (SELECT max(j.batch) FROM public.journal j WHERE j.shard = s.shard), 0
        ), last.log_time_ms, coalesce(said.seq, behind.seq, s.seq_next)
    FROM public.shards s LEFT JOIN said USING (shard) LEFT JOIN behind USING (shard)
    LEFT JOIN LATERAL (
        SELECT j.batch FROM public.journal j WHERE j.shard = s.shard AND j.position > upto
        ORDER BY j.position LIMIT 1
    ) AS next ON true
    LEFT JOIN LATERAL (
        SELECT j.log_time_ms FROM public.journal j WHERE j.shard = s.shard AND j.position <= upto
        ORDER BY j.position DESC LIMIT 1
    ) AS last ON true
    ORDER BY s.shard
$$
"""
_AS_OF = """
CREATE FUNCTION past.as_of(at timestamptz) RETURNS timestamptz LANGUAGE plpgsql AS $$
DECLARE
    upto bigint := past.position_at((extract(epoch FROM at) * 1000)::bigint);
    told record;
BEGIN
    IF upto < past.reach() THEN
        RAISE EXCEPTION 'the past is not known as far back as %', at;
    END IF;
    SELECT array_agg(c.batch ORDER BY c.shard) AS batches, array_agg(c.seq ORDER BY c.shard) AS seqs,
        max(c.log_time_ms) AS log_time_ms INTO told FROM past.cut(upto) c;
    PERFORM set_config('search_path', 'past, public', false),
        set_config('berth.batches', told.batches::text, false),
        set_config('berth.seqs', told.seqs::text, false);
    RETURN to_timestamp(told.log_time_ms / 1000.0);
END
$$
"""


_DO = {
    "reach()": "the position of the journal from which on the past is known",
    "position_at": "the position at a log time: of the longest prefix of the journal without a later row",
    "cut": "of each shard, the last batch and the next decision of a prefix of the journal",
    "closing": "the statement of closed_since",
    "closed_since": "placements that were open at the session''s moment and have ended since",
    "held": "what the pods of these nodes, or of all (null), ask for together, as of the session''s moment",
    "as_of": "lets all tables of this session be as they were at a log time, and returns the last by then",
}


def _began(by: str, batch: str) -> str:
    return f"({batch} IS NULL OR {batch} <= (SELECT past.batches())[{by} + 1])"


_LABELS = """coalesce((
    SELECT coalesce(l.labels, '{}') FROM public.past_labels l WHERE (l.shard, l.seq) = (p.shard, p.seq)
        AND l.until_batch > (SELECT past.batches())[l.until_by + 1] ORDER BY l.recorded_at LIMIT 1
), p.labels) AS labels"""


_PLACED = f"""p.shard, p.seq, p.pod_uid, p.namespace, p.name, NULL::bigint AS resource_version, p.signature,
    {_LABELS}, p.node, p.adopted, p.bound_at_ms"""
_REST = "p.life, p.counted, p.orphaned, p.home, p.gang"
_OPEN = f"""SELECT {_PLACED}, NULL::bigint AS released_at_ms, p.recorded_at,
    NULL::timestamptz AS released_recorded_at, {_REST}"""
_IS_OPEN = "(p.released_at_ms IS NULL OR p.closed_batch > (SELECT past.batches())[p.closed_by + 1])"


def _waiting(table: str) -> str:
    return f"""SELECT w.pod_uid, w.namespace, w.name, NULL::bigint AS resource_version, w.signature, w.labels,
    w.shard, w.arrival, w.since_ms, NULL::text AS sent_by, true AS tried, w.life, w.gang FROM {table}"""


_OBJECT = "kind, namespace, name, object, resource_version, at_ms, sent_by"
_OPENED = _began("p.opened_by", "p.opened_batch")

# Of what closed since, which may be most of the history, only what was there is read. The server finds it
# by both indexes where it knows the numbers, so the statement is written with them.
_CLOSED_SINCE = (
    """
CREATE FUNCTION past.closing() RETURNS text LANGUAGE sql STABLE AS $$
    SELECT format('SELECT * FROM public.placements c WHERE (%s) AND (%s)',
        string_agg(format('c.closed_by = %s AND c.closed_batch > %s', u.at - 1, u.batch), ' OR '),
        string_agg(format('c.shard = %s AND c.seq < %s', u.at - 1, u.seq), ' OR '))
    FROM unnest(past.batches(), past.seqs()) WITH ORDINALITY AS u (batch, seq, at)
$$
""",
    """
CREATE FUNCTION past.closed_since() RETURNS SETOF public.placements LANGUAGE plpgsql STABLE ROWS 100000 AS $$
BEGIN
    RETURN QUERY EXECUTE past.closing();
END
$$
""",
)

# As the invariant requested-is-the-sum says it; of some nodes, or (null) of all.
_HELD = """
CREATE FUNCTION past.held(names text[]) RETURNS TABLE (node text, resource text, held bigint)
LANGUAGE sql STABLE AS $$
    WITH held AS MATERIALIZED (
        SELECT p.node, p.signature, p.life FROM past.open_placements p WHERE p.counted AND names IS NULL
        UNION ALL
        SELECT p.node, p.signature, p.life FROM (SELECT DISTINCT unnest(names) AS node) AS asked
        JOIN past.open_placements p USING (node) WHERE p.counted AND names IS NOT NULL
    ), amounts AS MATERIALIZED (
        SELECT t.signature, a.key, a.value::bigint AS amount
        FROM public.templates t
        CROSS JOIN LATERAL jsonb_each_text((t.spec->'requests')::jsonb || '{"pods": 1}') AS a
        WHERE t.signature IN (SELECT signature FROM held)
    )
    SELECT h.node, a.key, sum(h.pods * a.amount)::bigint
    FROM (SELECT node, signature, count(*) AS pods FROM held GROUP BY node, signature) AS h
    JOIN amounts a USING (signature) GROUP BY h.node, a.key
    UNION ALL
    SELECT h.node, 'nvidia.com/gpu#' || i.device, sum(CASE
        WHEN coalesce((t.spec->'requests'->>'nvidia.com/gpu')::bigint, 0) > 0 THEN 1000
        ELSE (t.spec->'requests'->>'berth.dev/gpu-milli')::bigint
    END)::bigint
    FROM held h JOIN public.templates t USING (signature)
    CROSS JOIN LATERAL jsonb_array_elements_text(h.life::jsonb->'devices') AS i (device)
    WHERE h.life IS NOT NULL GROUP BY h.node, i.device
$$
"""

_VIEWS = {
    # For who looks rows up by their keys.
    "placements": f"""
SELECT {_PLACED}, CASE WHEN NOT {_IS_OPEN} THEN p.released_at_ms END AS released_at_ms, p.recorded_at,
    CASE WHEN NOT {_IS_OPEN} THEN p.released_recorded_at END AS released_recorded_at, {_REST}
FROM public.placements p WHERE {_OPENED}""",
    # For who reads all of them: what is open, and what has closed since.
    "open_placements": f"""
{_OPEN} FROM public.placements p WHERE p.released_at_ms IS NULL AND {_OPENED}
UNION ALL
{_OPEN} FROM past.closed_since() p WHERE {_OPENED}""",
    "pending": f"""
{_waiting("public.pending w")} WHERE {_began("w.added_by", "w.added_batch")}
UNION ALL
{_waiting("public.past_pending w")} WHERE {_began("w.added_by", "w.added_batch")}
    AND w.removed_batch > (SELECT past.batches())[w.removed_by + 1]""",
    "node_specs": f"""
SELECT node_id, version, spec, deleted, at_ms, recorded_at, sent_by FROM public.node_specs
    WHERE {_began("set_by", "set_batch")}""",
    "nodes": f"""
SELECT n.id, n.name, 0::bigint AS version, s.version AS spec_version, n.spec_count, s.deleted, n.allocatable,
    NULL::bigint[] AS requested
FROM public.nodes n
CROSS JOIN LATERAL (
    SELECT h.version, h.deleted FROM public.node_specs h
    WHERE h.node_id = n.id AND {_began("h.set_by", "h.set_batch")} ORDER BY h.version DESC LIMIT 1
) AS s""",
    "config_objects": f"""
SELECT {_OBJECT} FROM public.config_objects WHERE {_began("set_by", "set_batch")}
UNION ALL
SELECT {_OBJECT} FROM public.past_config
    WHERE until_batch > (SELECT past.batches())[until_by + 1] AND {_began("set_by", "set_batch")}""",
    "profiles": f"""
SELECT name, revision, spec, resource_version, at_ms, recorded_at, sent_by FROM public.profiles
    WHERE {_began("set_by", "set_batch")}""",
    "decisions": """
SELECT d.* FROM public.decisions d WHERE d.seq < (SELECT past.seqs())[d.shard + 1]""",
    "group_attempts": f"""
SELECT * FROM public.group_attempts WHERE {_began("noted_by", "noted_batch")}""",
    "pending_groups": f"""
SELECT g.shard, g.signature, a.reasons, a.unresolvable, a.cycle_seq, a.at_ms
FROM (
    SELECT shard, signature FROM public.pending_groups WHERE {_began("begun_by", "begun_batch")}
    UNION SELECT shard, signature FROM public.past_groups
        WHERE emptied_batch > (SELECT past.batches())[emptied_by + 1] AND {_began("begun_by", "begun_batch")}
) AS g JOIN LATERAL (
    SELECT b.*, (
        SELECT min(n.number) FROM public.group_attempts n
        WHERE (n.shard, n.signature) = (g.shard, g.signature) AND n.number > b.number
    ) AS next
    FROM public.group_attempts b WHERE (b.shard, b.signature) = (g.shard, g.signature)
        AND {_began("b.noted_by", "b.noted_batch")}
    ORDER BY b.number DESC LIMIT 1
) AS a ON coalesce(a.next, a.number + 1) = a.number + 1""",
}


def upgrade() -> None:
    """Add what says from when to when a fact held, and the views."""
    for statement in filter(str.strip, _TABLES.split(";\n")):
        op.execute(statement)
    for thing, says in _ABOUT.items():
        op.execute(f"COMMENT ON {'COLUMN' if '.' in thing else 'TABLE'} {thing} IS '{says}'")
    op.execute("CREATE SCHEMA past")
    for name in _SETTINGS:
        body = f"SELECT current_setting('berth.{name}')::bigint[]"
        op.execute(f"CREATE FUNCTION past.{name}() RETURNS bigint[] LANGUAGE sql STABLE AS $$ {body} $$")
    for function in _CLOSED_SINCE:
        op.execute(function)
    for name, query in _VIEWS.items():
        op.execute(f"CREATE VIEW past.{name} AS {query}")
        op.execute(
            f"COMMENT ON VIEW past.{name} IS 'the table {name} as of the moment that the session names'"
        )
    for function in (_REACH, _POSITION_AT, _CUT, _AS_OF, _HELD):
        op.execute(function)
    for name, says in _DO.items():
        op.execute(f"COMMENT ON FUNCTION past.{name} IS '{says}'")
