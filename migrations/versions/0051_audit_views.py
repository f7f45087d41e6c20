"""Views for auditors: the columns that `berth export` writes, in a schema of their own."""

from __future__ import annotations

from alembic import op

revision = "0051"
down_revision = "0050"
branch_labels = None
depends_on = None
works_from = "0050"  # as of the migration before

_VIEWS = {
    "decisions": r"""
SELECT
    d.shard || '-' || d.seq AS id,
    d.shard,
    d.seq,
    d.epoch,
    d.namespace,
    d.name,
    d.pod_uid,
    (x.record #>> '{pod,resource_version}')::numeric::bigint AS resource_version,
    d.outcome,
    d.node,
    (x.record #>> '{node_version}')::numeric::bigint AS node_version,
    to_timestamp(d.decided_at_ms / 1000.0) AS decided_at,
    to_timestamp(floor(extract(epoch FROM (x.record #>> '{event_at}')::timestamptz) * 1000)::bigint /
        1000.0) AS event_at,
    to_timestamp(floor(extract(epoch FROM d.recorded_at) * 1000)::bigint / 1000.0) AS recorded_at,
    x.record #>> '{sent_by}' AS sent_by,
    x.record #>> '{profile}' AS profile,
    d.profile_revision,
    x.record #>> '{reason}' AS reason,
    (x.record #> '{reasons}')::json AS reasons,
    (x.record #> '{warnings}')::json AS warnings,
    (x.record #>> '{score}')::double precision AS score,
    (x.record #> '{devices}')::json AS devices,
    coalesce((x.record #>> '{template,requests,cpu}')::numeric::bigint, 0) AS cpu_milli,
    coalesce((x.record #>> '{template,requests,memory}')::numeric::bigint, 0) AS memory_bytes,
    (x.record #> '{template,requests}')::json AS requests,
    (x.record #> '{labels}')::json AS labels,
    encode(d.signature, 'hex') AS signature,
    CASE WHEN d.cycle_seq > 0 THEN d.shard || '-' || d.cycle_seq END AS cycle,
    (x.record #> '{preemption,victims}')::json AS victims,
    (x.record #>> '{preemption,violations}')::numeric::bigint AS violations,
    to_timestamp(floor(extract(epoch FROM (x.record #>> '{preemption,expires_at}')::timestamptz) *
        1000)::bigint / 1000.0) AS expires_at,
    x.record #>> '{preemption,preemptor}' AS preemptor,
    (x.record #>> '{preemption,priority}')::numeric::bigint AS preemptor_priority,
    x.record #>> '{preemption,nominated}' AS nominated,
    x.record #>> '{migration,to}' AS moved_to,
    (x.record #> '{migration,why}')::json AS moved_why,
    (x.record #>> '{migration,relief,cpu}')::numeric::bigint AS relief_cpu_milli,
    (x.record #>> '{migration,relief,memory}')::numeric::bigint AS relief_memory_bytes
FROM decisions d CROSS JOIN LATERAL (SELECT replace(convert_from(d.payload, 'UTF8'), '\u0000',
        '\ufffd')::jsonb AS record OFFSET 0) x
""",
    "attempts": r"""
SELECT
    a.shard,
    encode(a.signature, 'hex') AS signature,
    a.number,
    to_timestamp(a.at_ms / 1000.0) AS at,
    to_timestamp(a.last_at_ms / 1000.0) AS last_at,
    a.times,
    a.profile,
    nullif(a.profile_revision, 0) AS profile_revision,
    a.nodes_count AS nodes,
    (a.reasons)::json AS reasons,
    a.unresolvable,
    CASE WHEN a.cycle_seq > 0 THEN a.shard || '-' || a.cycle_seq END AS cycle
FROM group_attempts a
""",
    "placements": r"""
SELECT
    p.shard || '-' || p.seq AS id,
    p.shard,
    p.seq,
    p.namespace,
    p.name,
    p.pod_uid,
    p.resource_version,
    p.node,
    p.adopted,
    to_timestamp(p.bound_at_ms / 1000.0) AS bound_at,
    to_timestamp(p.released_at_ms / 1000.0) AS released_at,
    to_timestamp(floor(extract(epoch FROM p.recorded_at) * 1000)::bigint / 1000.0) AS recorded_at,
    to_timestamp(floor(extract(epoch FROM p.released_recorded_at) * 1000)::bigint / 1000.0) AS
        released_recorded_at,
    p.orphaned,
    p.gang,
    coalesce((t.spec #>> '{requests,cpu}')::numeric::bigint, 0) AS cpu_milli,
    coalesce((t.spec #>> '{requests,memory}')::numeric::bigint, 0) AS memory_bytes,
    (coalesce(t.spec -> 'requests', '{}'::json))::json AS requests,
    (coalesce(p.labels, '{}')::json)::json AS labels,
    encode(p.signature, 'hex') AS signature
FROM placements p LEFT JOIN templates t ON t.signature = p.signature
""",
    "nodes": r"""
SELECT
    n.name,
    n.id,
    n.version,
    (s.spec ->> 'resource_version')::numeric::bigint AS resource_version,
    n.deleted,
    coalesce((s.spec ->> 'unschedulable')::boolean, false) AS unschedulable,
    (s.spec ->> 'ready')::boolean AS ready,
    (coalesce(s.spec -> 'labels', '{}'::jsonb))::json AS node_labels,
    (coalesce(s.spec -> 'taints', '[]'::jsonb))::json AS taints,
    coalesce(n.allocatable[(SELECT r.id FROM resources r WHERE r.name = 'cpu')], 0) AS
        allocatable_cpu_milli,
    coalesce(n.allocatable[(SELECT r.id FROM resources r WHERE r.name = 'memory')], 0) AS
        allocatable_memory_bytes,
    (coalesce((SELECT json_object_agg(r.name, v.amount ORDER BY r.id) FROM unnest(n.allocatable) WITH
        ORDINALITY AS v (amount, id) JOIN resources r ON r.id = v.id WHERE v.amount <> 0),
        '{}'::json))::json AS allocatable,
    coalesce(n.requested[(SELECT r.id FROM resources r WHERE r.name = 'cpu')], 0) AS
        requested_cpu_milli,
    coalesce(n.requested[(SELECT r.id FROM resources r WHERE r.name = 'memory')], 0) AS
        requested_memory_bytes,
    coalesce(n.requested[(SELECT r.id FROM resources r WHERE r.name = 'pods')], 0) AS requested_pods,
    (coalesce((SELECT json_object_agg(r.name, v.amount ORDER BY r.id) FROM unnest(n.requested) WITH
        ORDINALITY AS v (amount, id) JOIN resources r ON r.id = v.id WHERE v.amount <> 0),
        '{}'::json))::json AS requested,
    to_timestamp(s.at_ms / 1000.0) AS spec_changed_at,
    s.sent_by AS spec_sent_by
FROM nodes n LEFT JOIN node_specs s ON s.node_id = n.id AND s.version = n.spec_version
""",
    "config": r"""
SELECT
    c.kind,
    c.namespace,
    c.name,
    c.revision,
    c.resource_version,
    c.object IS NULL AS deleted,
    to_timestamp(c.at_ms / 1000.0) AS changed_at,
    to_timestamp(floor(extract(epoch FROM c.recorded_at) * 1000)::bigint / 1000.0) AS recorded_at,
    c.sent_by,
    (c.object)::json AS object
FROM (
    SELECT kind, namespace, name, 0::bigint AS revision, object, resource_version, at_ms, recorded_at,
        sent_by
    FROM config_objects
    UNION ALL
    SELECT 'Profile', '', name, revision, spec, resource_version, at_ms, recorded_at, sent_by FROM
        profiles
) c
""",
}
_ABOUT = {
    "decisions": "decisions/1: docs/export.md says what the columns mean",
    "attempts": "attempts/1: docs/export.md says what the columns mean",
    "placements": "placements/1: docs/export.md says what the columns mean",
    "nodes": "nodes/1: docs/export.md says what the columns mean",
    "config": "config/1: docs/export.md says what the columns mean",
}


def upgrade() -> None:
    """Create the views. They read with the rights of their owner, so that a role needs them alone."""
    op.execute("CREATE SCHEMA IF NOT EXISTS audit")
    op.execute("COMMENT ON SCHEMA audit IS 'views for auditors; nothing of berth writes here'")
    for name, statement in _VIEWS.items():
        op.execute(f"CREATE VIEW audit.{name} AS {statement}")
        op.execute(f"COMMENT ON VIEW audit.{name} IS '{_ABOUT[name]}'")
