"""Every bound of the product in one place, with the relations between them asserted.

Units come last in names. Where a bound is shown to a user, its error names the bound.
"""

from __future__ import annotations

INT64_MAX = 2**63 - 1

# What a record may contain.
event_bytes_max = 1 << 20
events_per_request_max = 5_000
request_bytes_max = 16 << 20
sent_event_bytes_max = 2 << 20  # as it came, with what is not kept: a Kubernetes object has 1.5 MiB at most
request_values_max = 2 << 20  # as they came: commas and brackets count
event_values_max = 100_000  # as it came; what takes a tenth of a second to read
bodies_of_key_bytes_max = 64 << 20  # of the requests of one key that are under way
bodies_bytes_max = 256 << 20  # of all requests that are under way
name_length_max = 253
label_name_length_max = 63
labels_per_object_max = 256
declared_features_per_node_max = 256  # Kubernetes 1.36 knows five
devices_per_node_max = 16  # told apart one by one; of a node with more, only the number counts
taints_per_node_max = 64  # Kubernetes sets none; its own controllers give a node about ten
tolerations_per_pod_max = 64
containers_per_pod_max = 256
host_ports_per_pod_max = 256
gates_per_pod_max = 64
resources_per_object_max = 64
terms_per_affinity_max = 64
requirements_per_affinity_max = 256  # in all of its terms
spread_constraints_per_pod_max = 16  # Kubernetes sets no bounds to these; its own suite uses up to three
pod_affinity_terms_max = 32  # of one pod, whatever their kind
anti_affinity_keys_per_pod_max = 8  # topology keys of required terms: each refuses nodes to all pods it means
requirements_per_selector_max = 64
values_per_selector_max = 1_000  # in all requirements of a label selector
namespaces_per_term_max = 256
values_per_affinity_max = 5_000  # in all of them: enough to name each node of the largest Kubernetes cluster
usage_resources_max = 16  # different resources that are measured on one node
requested_resources_max = 10  # different resources that one pod asks for
dead_letter_key_bytes_max = 1 << 10
dead_letter_topic_raw_bytes_max = 64 << 10

# How much stays of why a group waited: the first few attempts that differ, and the latest.
attempts_first_max = 8
attempts_latest_max = 56

# What a quantity may be. A resource value fits int64 even when summed over a full node.
resource_value_max = 2**50
cpu_milli_max = 10**9
pods_per_node_max = 2**12
usage_percent_max = 10_000  # a hundred times what the node has: beyond that a unit is wrong

# How measured usage is remembered.
usage_window_seconds_min = 10
usage_window_seconds_max = 86_400
usage_window_seconds = 900  # where neither the node nor the configuration says another
usage_samples_max = 120  # per node and resource; closer ones are thinned out, the latest of each span stays
tombstone_hours = 168  # how long a pod that is gone is remembered: as long as a topic keeps every record
tombstone_hours_max = 8_784
action_text_bytes_max = 1_000  # of why an agent did something
action_times_max = 1_000_000  # acts of an agent that one record stands for
node_actions_max = 1_000_000  # of agents, that the ledger keeps
node_action_days = 90
dead_letters_max = 100_000  # that the ledger keeps per shard
dead_letter_days = 90
hosted_objects_max = 200  # HostedReplicas in force: each costs a look at all nodes per step
hosted_objects_of_namespace_max = 20
hosted_pods_max = 10_000  # replicas of one workload
hosted_growth_max = 1_000  # replicas by which a workload may grow in a step
hosted_said_seconds = 60  # after which what was said is written again if only the reason changed
scale_days = 90  # for which published scales stay
bill_days = 800  # two years, and the month in which they are looked at
rollup_days = 400  # a year, and the month in which they are looked at
rollup_pause_seconds = 10.0  # between two looks for decisions that are not counted
preemption_seconds = 60  # of log time in which victims have to leave the node for which a pod is nominated
preemption_seconds_max = 3_600
reservation_seconds = 300  # of log time in which a pod finds no node before one may be kept free for it
reservation_seconds_max = 86_400
reservation_lasts_seconds = 3_600
reservation_look_ms = 1_000  # between two looks at a reservation, in log time
reservation_tries_max = 4  # groups for which a node is sought in one look
relief_looks_max = 4  # hot nodes for which pods to move are sought in one cycle
relief_choices_max = 4  # of pods to move, per hot node and look: others, where one found no node
dying_seconds_max = 3_600  # for which a nomination is kept, at most, while victims that are told to end do so
unheeded_seconds_max = 3_600  # for which a pod evicts none, at most, after nominations that ran out
bind_failure_seconds = 60  # of log time in which a pod is kept off a node that it could not be bound to
tombstone_steps = 64  # by which that time passes
pod_counter_max = 1e24  # core-seconds or byte-seconds of one pod: a million years of 32 TB
pod_counters_seconds = 3_600  # for which the counters of a pod stay after the last report of it
reported_pods_max = 2**13  # per node, of pods whose counters stay
usage_ahead_seconds_max = 60  # by which a measurement's clock may be ahead of the log's
unknown_nodes_measured_max = 10_000

# What the filters and scores of one profile may have together.
static_reasons_max = 39
limits_per_profile_max = 8
resource_filters_max = 1
normalised_scores_max = 8
resource_scores_max = 8
scored_resources_max = 64
score_numbers_max = 1_024  # points of curves and the spans in which they count are two each, shapes six
variance_scores_max = 4
count_scores_max = 4
wide_terms_per_namespace_max = 32  # different terms of its pods over all pods of other namespaces
rules_per_pod_max = 24  # over what other pods count: constraints and terms, those of one topology key merged
values_per_pod_max = 32  # summands of scores over what other pods count
counted_weight_max = 1_023  # of one pod in one sum over pods; more counts as this, for or against
counted_pods_max = 1 << 21  # at which such a sum still fits 32 bits

# What a batch may hold.
batch_records_max = 3_000
batch_bytes_max = 4 << 20  # of records of 700 bytes and more a full batch has fewer
read_ahead_records_max = 10_000  # behind a full batch: folded with it where more important pods wait
read_ahead_bytes_max = 16 << 20
poll_records_max = 2_000
batch_decisions_max = (
    10_000  # a record brings at most one per pod of a node; beyond it no further one is folded
)
cycle_work_max = 240_000  # in units of about a microsecond: see domain/queue/turns.py
cycle_pods_max = 4_000  # that one cycle tries, or tells why they wait
cycle_work_low_max = 10_000  # of low pods, on top: a tenth of what a full batch takes until its commit
cycle_pods_low_max = 300  # of them: a tenth of a full batch
gang_members_max = 10_000  # that wait at a time: they are tried in one cycle, and committed in one batch
gang_pairs_max = 200_000  # of kinds of its pods and terms of others, and of its terms and kinds of others
gang_domains_per_cycle_max = 16  # in which a gang is tried that has to be in one; others have their turn next

# What is unpacked of the log's own batches. A batch of 1 MiB may hold a hundred times as much: equal pods do.
unpacked_batch_bytes_max = 128 << 20
unpacked_poll_bytes_max = 32 << 20
unpacked_held_bytes_max = 256 << 20  # by one reader, of large batches that it has begun to read

# What the engine keeps.
groups_cached_max = 1 << 14  # compiled
group_cache_bytes_max = 384 << 20  # of what is kept per node, as reserved; what no node uses is not taken
row_bounds_bytes_max = 96 << 20  # of the bounds by the row of groups that take turns
base_cache_bytes_max = 32 << 20  # of groups with rules or values over pods
counter_cells_max = 1 << 25  # of counters over pods: a cell per counter and domain, 5 bytes each
candidates_explained_max = 5
reasons_per_cycle_max = 160
reason_codes_bytes_max = 8 << 10  # of the codes of one attempt, which each of its decisions repeats twice
tombstones_max = 5_000_000  # of pods that are gone; time bounds them before, as a rule
signatures_cached_max = 50_000  # what is derived from a signature and made again when it is asked for
label_keys_idle_max = 32  # label keys by which pods are still told apart, though no selector mentions them
profiles_max = 1_000  # in force at the same time
priority_classes_max = 1_000  # in force at the same time
policies_max = 200  # in force at the same time: a node's labels are compared with each when one changes
config_objects_of_namespace_max = 20_000  # of each other kind, in force at the same time in one namespace
config_objects_max = 500_000  # of each other kind, in all namespaces
config_gone_max = 10_000  # objects that are gone and remembered, so that a late duplicate stays late
resource_names_max = 512  # of all nodes together: a column over all nodes each; a dozen are berth's own

# Replay. A checkpoint costs a worker about 7 µs per pod, and every waiting group one more attempt.
checkpoint_batches = 10_000
checkpoints_kept = 24

# What a worker takes of others' batches at a time: about as much as a batch of its own takes to fold.
followed_rows_max = 64
followed_bytes_max = 512 << 10

# Time.
lease_seconds = 2.0
lease_renewal_seconds = 0.5
returning_seconds = 2.0  # after an outage of the ledger a call that hangs ends, and is tried again
lease_seconds_max = 60.0  # a lease that ends later was written before the database's clock was set back
refold_lease_seconds = 60.0  # of a refold, which must not be disturbed for so long
progress_seconds = 10.0  # a worker that got no step further for so long gives its shards back
heartbeat_seconds = 1.0
worker_seen_seconds_max = 3.0  # a worker that was not seen for so long gets no share of the shards
heartbeat_seconds_max = 5.0  # a worker that was not seen for so long is not up
backoff_ms_min = 1_000  # of a group after a failed attempt, in log time; doubled with each further one
backoff_ms_max = 10_000
timed_step_ms = 1_000  # log time is looked at for what is timed when it comes to a multiple of it
tick_ms = 1_000  # between two ticks, and how far one moves a log time that is ahead of it
retry_backoff_ms_min = 50
retry_backoff_ms_max = 1_000  # of a server that does not answer: a longer wait would come back late
starting_over_ms_max = 5_000  # between two starts of a worker, each of which reads the whole cluster

assert resource_value_max * pods_per_node_max <= INT64_MAX
assert cpu_milli_max <= resource_value_max
assert counted_weight_max * counted_pods_max < 2**31
assert usage_window_seconds_min <= usage_window_seconds <= usage_window_seconds_max
assert usage_samples_max > 1
assert 10 * config_objects_of_namespace_max <= config_objects_max
assert poll_records_max <= batch_records_max
assert event_bytes_max < unpacked_poll_bytes_max <= unpacked_batch_bytes_max <= unpacked_held_bytes_max
assert events_per_request_max * 64 <= request_bytes_max
assert event_bytes_max < sent_event_bytes_max < request_bytes_max < bodies_of_key_bytes_max < bodies_bytes_max
assert 0 < 2 * lease_renewal_seconds < lease_seconds < progress_seconds
assert max(lease_seconds, refold_lease_seconds) <= lease_seconds_max
assert 2 * heartbeat_seconds < worker_seen_seconds_max <= heartbeat_seconds_max
assert batch_records_max <= cycle_pods_max - 2 * (cycle_pods_max // 8)  # see domain/queue/turns.py
assert cycle_pods_low_max * 10 <= batch_records_max
assert backoff_ms_min <= backoff_ms_max
assert retry_backoff_ms_min <= retry_backoff_ms_max <= starting_over_ms_max
assert dead_letter_topic_raw_bytes_max * 2 < event_bytes_max
assert anti_affinity_keys_per_pod_max * 2 <= rules_per_pod_max

# What a search for cures may cost.
cure_dry_runs_max = 200
cure_pods_max = 1_000  # of a group: for so many each cure is counted
cure_seconds_max = 5
cures_asked_at_once_max = 16  # of one API process; they are answered one after another
plan_pods_max = 1_000  # that one request plans, those of workloads and copies included
plan_more_max = 10_000  # copies that are counted of a pod
plan_more_pods_max = 5  # different pods of which it is counted how many more fit, or what would cure them
advisor_kept_seconds = 60  # the cluster that is asked goes so long after the last question
advisor_answer_seconds_max = 110  # with the time that it takes to read the ledger

wait_seconds_max = 100
"""How long a request may wait until its events are folded, in seconds."""

# What an answer may hold.
page_bytes_max = 4 << 20  # a page ends with the item that reaches it
raw_bytes_shown_max = 4 << 10  # of the record of a dead letter, in a list

# What the questions of one API process may take of the database.
read_seconds = 5
lists_at_once = 4
past_at_once = 2  # questions about the past, which read more than others
reads_of_key_at_once = 2  # so that one key leaves others their turn
appends_of_key_at_once = 2  # requests with events that look their ids up or append, for the same reason
connection_wait_seconds = 1.5
sessions_per_key_max = 100  # who signs in once more ends the oldest
session_seconds_max = 12 * 3600
form_bytes_max = 2 << 20  # that the console takes: manifests to plan, as a browser writes them
exports_at_once = 2  # each on a connection of its own, beside those of lists
export_seconds_max = 600  # a snapshot keeps the database from cleaning up what each commit leaves behind

# What the streams of events of one API process hold.
stream_ring_bytes_max = 32 << 20  # of the latest events, which all streams share
stream_page_seconds_max = 30  # in which a stream that catches up takes what was read for it
streams_catching_up_max = 8  # at once; others wait their turn
assert 0 < reads_of_key_at_once < lists_at_once
