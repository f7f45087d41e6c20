"""Settings: every knob of berth, described where it is defined, read once and never changed."""

from __future__ import annotations

import dataclasses
import difflib
import getpass
import os
import socket
from collections.abc import Mapping
from pathlib import Path

from domain.model import limits
from services.log_format import LOG_FORMATS
from services.parsing import (
    LOG_LEVELS,
    bootstrap,
    directory,
    dsn,
    hosts,
    integer,
    key,
    level,
    one_of,
    path,
    seconds,
    some_text,
    topic_writers,
    url,
)
from services.secret import with_password
from services.setting import Secrecy as Secrecy
from services.setting import Setting as Setting
from services.setting import SettingError as SettingError
from services.setting import setting

DEFAULT_API_PORT = 8080
REQUESTS_PER_KEY = 64
API_AUTH = ("made", "always")
KAFKA_SECURITY = ("plaintext", "tls", "sasl-plaintext", "sasl-tls")
KAFKA_MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")


def default_worker_name() -> str:
    """Return a name that no other live process of this installation has."""
    return f"{socket.gethostname()}-{os.getpid()}"


def local_user() -> str:
    """Return the name of the user of this machine who runs this process, or his number if he has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


@dataclasses.dataclass(frozen=True, kw_only=True)
class KafkaAccess:
    """How the brokers are made sure of, and who we are to them."""

    tls: bool = False
    sasl: bool = False
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    mechanism: str = KAFKA_MECHANISMS[0]
    username: str | None = None
    password: str | None = dataclasses.field(default=None, repr=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """The values of all settings, in the order in which they are shown."""

    kafka_bootstrap: str | None = setting(
        bootstrap,
        "HOST:PORT",
        "Kafka brokers, host:port[,…]. Empty: the log is a table in the Postgres database.",
    )
    kafka_security: str = setting(
        one_of(*KAFKA_SECURITY),
        "HOW",
        f"How Kafka's brokers are spoken to: {', '.join(KAFKA_SECURITY)}.",
        KAFKA_SECURITY[0],
    )
    kafka_ca_file: Path | None = setting(  # noqa: RUF009
        path, "FILE", "Certificates (PEM) that vouch for the brokers. Empty: the system's."
    )
    kafka_cert_file: Path | None = setting(  # noqa: RUF009
        path, "FILE", "Our own certificate (PEM), for brokers that ask for one."
    )
    kafka_key_file: Path | None = setting(  # noqa: RUF009
        path, "FILE", "The key of that certificate (PEM, no passphrase)."
    )
    kafka_sasl_mechanism: str = setting(
        one_of(*KAFKA_MECHANISMS),
        "NAME",
        f"How Kafka checks the password: {', '.join(KAFKA_MECHANISMS)}.",
        KAFKA_MECHANISMS[0],
    )
    kafka_username: str | None = setting(some_text, "NAME", "Who we are to Kafka.")
    kafka_password: str | None = setting(
        some_text, "PASSWORD", "Password for BERTH_KAFKA_USERNAME.", secrecy=Secrecy.WHOLE
    )
    kafka_writers: Mapping[str, str] = setting(
        topic_writers,
        "TOPIC=PRINCIPAL",
        "The one principal beside the API that the broker's ACLs let write to a topic, joined by ;: what it "
        "writes is sent by direct:PRINCIPAL instead of direct.",
        dict,
        shown="none",
    )
    postgres_dsn: str | None = setting(
        dsn,
        "DSN",
        "Postgres database of the ledger. Empty: an embedded server that keeps its data in BERTH_DIR.",
        secrecy=Secrecy.PASSWORD,
    )
    postgres_password: str | None = setting(
        some_text,
        "PASSWORD",
        "Password for BERTH_POSTGRES_DSN, if that has none. Without either, PGPASSFILE or ~/.pgpass.",
        secrecy=Secrecy.WHOLE,
    )
    shards: int | None = setting(
        integer(1, 1024),
        "N",
        "Number of shards (partitions of the pods topic); `init` lays them down, and may add some.",
        shown="1",
    )
    seed: int = setting(
        integer(0, 2**63 - 1), "N", "Seed of tie-breaking, by which equal nodes are chosen among.", 0
    )
    lease_seconds: float = setting(
        seconds(0.5, limits.lease_seconds_max),
        "SECONDS",
        "How long a silent worker or relay keeps shards.",
        limits.lease_seconds,
    )
    lease_renewal_seconds: float = setting(
        seconds(0.1, 20), "SECONDS", "How often it says that it lives.", limits.lease_renewal_seconds
    )
    progress_seconds: float = setting(
        seconds(1, 3600), "SECONDS", "A worker without a step for so long gives up.", limits.progress_seconds
    )
    checkpoint_batches: int = setting(
        integer(0, 10**7),
        "N",
        "Batches between checkpoints for `replay`; 0: none.",
        limits.checkpoint_batches,
    )
    checkpoints: int = setting(
        integer(1, 10**4), "N", "How many checkpoints are kept, the latest ones.", limits.checkpoints_kept
    )
    usage_window_seconds: int = setting(
        integer(limits.usage_window_seconds_min, limits.usage_window_seconds_max),
        "SECONDS",
        "How far back measured usage is averaged, where the node does not say it; see docs/events.md.",
        limits.usage_window_seconds,
    )
    preemption: str = setting(
        one_of("on", "off"),
        "on|off",
        "Whether pods may have others of lower priority evicted; see docs/preemption.md.",
        "on",
    )
    preemption_seconds: int = setting(
        integer(1, limits.preemption_seconds_max),
        "SECONDS",
        "How long a pod is nominated for a node that victims have to leave; see docs/preemption.md.",
        limits.preemption_seconds,
    )
    reservation_seconds: int = setting(
        integer(0, limits.reservation_seconds_max),
        "SECONDS",
        "How long a pod finds no node before one may be kept free for it; 0: none is. See docs/queue.md.",
        limits.reservation_seconds,
    )
    shadow_profile: str | None = setting(
        some_text,
        "PROFILE",
        "A profile that workers compare with those in force, without any effect; see docs/shadow.md.",
    )
    tombstone_hours: int = setting(
        integer(1, limits.tombstone_hours_max),
        "HOURS",
        "How long a pod that is gone is remembered, so that a late duplicate of it stays late.",
        limits.tombstone_hours,
    )
    dead_letters_max: int = setting(
        integer(1, 2**31), "N", "How many dead letters the ledger keeps per shard.", limits.dead_letters_max
    )
    dead_letter_days: int = setting(
        integer(1, 36_500), "DAYS", "How long the ledger keeps a dead letter.", limits.dead_letter_days
    )
    journal_hours: int = setting(
        integer(1, 24 * 3660),
        "HOURS",
        "How old rows of the journal are that `prune` deletes.",
        24 * 7,
    )
    history_days: int = setting(
        integer(0, 36_500),
        "DAYS",
        "How old decisions and placements that are over are when `prune` deletes them, and past owners of "
        "shards when workers do; 0: decisions stay, and past owners go with the journal.",
        0,
    )
    bill_days: int = setting(
        integer(0, 36_500),
        "DAYS",
        "How old hours of the bill are when `prune` deletes them; 0: they stay.",
        limits.bill_days,
    )
    rollup_days: int = setting(
        integer(0, 36_500),
        "DAYS",
        "How old steps of the roll-up are (`berth top`) when `prune` deletes them; 0: they stay.",
        limits.rollup_days,
    )
    embedded_log_hours: int = setting(
        integer(1, limits.tombstone_hours_max),
        "HOURS",
        "How long the embedded log keeps what a later record replaced, usage, decisions and dead letters.",
        limits.tombstone_hours,
    )
    worker_name: str = setting(
        some_text, "NAME", "Its name in the leases; unique.", default_worker_name, shown="host-pid"
    )
    dir: Path | None = setting(  # noqa: RUF009
        directory,
        "DIR",
        "Where `up` and `demo` keep the embedded server's data, this instance's address and its first key.",
        shown="user data directory",
    )
    api_host: str = setting(
        some_text, "ADDRESS", "Address that the API listens on.", "127.0.0.1", short_flag="--host"
    )
    api_port: int = setting(
        integer(0, 65535),
        "PORT",
        "Port of the API; 0: any free one. `up` and `demo` take a free one when the default is in use.",
        DEFAULT_API_PORT,
        short_flag="--port",
    )
    api_hosts: tuple[str, ...] = setting(
        hosts,
        "NAME,…",
        "Names besides localhost by which requests may call the API, as that of a proxy before it.",
        (),
    )
    api_auth: str = setting(
        one_of(*API_AUTH),
        "WHEN",
        "When the API asks for a key on loopback too: `always`, or once one was `made`.",
        "made",
    )
    api_url: str | None = setting(
        url,
        "URL",
        "API that the commands talk to. Empty: the instance in BERTH_DIR or the ledger.",
        short_flag="--api",
        secrecy=Secrecy.PASSWORD,
    )
    api_key: str | None = setting(key, "KEY", "Key that the commands show to the API.", secrecy=Secrecy.WHOLE)
    api_requests_per_key: int = setting(
        integer(1, 100_000),
        "N",
        "Requests at once of the keys of one name, where the key does not say how many.",
        REQUESTS_PER_KEY,
    )
    api_read_seconds: int = setting(
        integer(1, 600),
        "SECONDS",
        "How long the database may work on one question to the API; then the answer is 503.",
        limits.read_seconds,
    )
    api_lists_at_once: int = setting(
        integer(1, 100),
        "N",
        "Lists that one API process reads at once, each on a connection of its own; others wait a little.",
        limits.lists_at_once,
    )
    replica_dsn: str | None = setting(
        dsn,
        "DSN",
        "Postgres database that answers about the past, such as a replica that follows the ledger's. Empty: "
        "the ledger's own.",
        secrecy=Secrecy.PASSWORD,
    )
    why: str = setting(
        one_of("on", "off"),
        "on|off",
        "Whether the API searches for what would cure waiting pods, in a process as large as a worker.",
        "on",
    )
    why_fresh_seconds: int = setting(
        integer(0, 3600),
        "SECONDS",
        "For how long the API answers why pods wait from what it has read of the ledger; docs/why.md.",
        10,
    )
    api_streams_max: int = setting(
        integer(1, 100_000),
        "N",
        "Streams of events that one API process has open at once; each is a connection.",
        500,
    )
    api_streams_per_key: int = setting(
        integer(1, 100_000), "N", "Streams of events at once of the keys of one name, per API process.", 50
    )
    api_stream_seconds: int = setting(
        integer(1, 86_400),
        "SECONDS",
        "How long a stream of events is open; its reader then begins a new one, and its key counts anew.",
        900,
    )
    event_id_hours: int = setting(
        integer(1, 24 * 366),
        "HOURS",
        "How long the API remembers the ids of accepted events; an older one is taken for new.",
        24 * 7,
    )
    access_log_days: int = setting(
        integer(1, 3660), "DAYS", "How long the API remembers who asked it for what; see docs/audit.md.", 90
    )
    api_tls_cert: Path | None = setting(  # noqa: RUF009
        path,
        "FILE",
        "Certificate of the API, with those that vouch for it (PEM). Given: the API speaks HTTPS alone.",
    )
    api_tls_key: Path | None = setting(  # noqa: RUF009
        path, "FILE", "Private key of BERTH_API_TLS_CERT (PEM)."
    )
    api_ca: Path | None = setting(  # noqa: RUF009
        path,
        "FILE",
        "Certificates that the commands trust when they talk HTTPS to the API (PEM). Empty: the usual ones.",
    )
    metrics_host: str = setting(
        some_text,
        "ADDRESS",
        "Address that the metrics port listens on. Beyond loopback BERTH_METRICS_KEY is needed.",
        "127.0.0.1",
    )
    metrics_key: str | None = setting(
        key,
        "KEY",
        "Key that /metrics of `worker` and `relay` asks for (Authorization: Bearer KEY).",
        secrecy=Secrecy.WHOLE,
    )
    metrics_port: int = setting(
        integer(0, 65535),
        "PORT",
        "Port on which `worker` and `relay` serve Prometheus metrics and /healthz; 0: none.",
        0,
    )
    log_level: str = setting(level, "LEVEL", f"One of {', '.join(LOG_LEVELS)}.", "warning")
    log_format: str = setting(
        one_of(*LOG_FORMATS),
        "FORMAT",
        f"How lines of the log look: {' or '.join(LOG_FORMATS)}, an object a line.",
        LOG_FORMATS[0],
    )

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, **flags: str | None) -> Settings:
        """Read the settings; a flag that is not None wins over its variable.

        Raises
        ------
        SettingError
            A value is not allowed; the message names the variable, the flag and what is allowed.
        """
        found = os.environ if environ is None else environ
        values = {setting.field: setting.read(found, flags) for setting in SETTINGS}
        settings = cls(**{name: value for name, value in values.items() if value is not None})
        if settings.lease_renewal_seconds * 2 > settings.lease_seconds:
            raise SettingError(
                "half of BERTH_LEASE_SECONDS at most is allowed in BERTH_LEASE_RENEWAL_SECONDS"
            )
        if 0 < settings.history_days * 24 < settings.journal_hours:
            raise SettingError(
                "BERTH_HISTORY_DAYS has to reach back as far as BERTH_JOURNAL_HOURS: a replay needs both"
            )
        return settings

    @property
    def owners_seconds(self) -> float:
        """How long past owners and workers are kept: they say which worker decided, and wrote the journal."""
        return 3600.0 * max(self.journal_hours, self.history_days * 24)

    @property
    def dsn(self) -> str | None:
        """The address of the database with its password; None: the embedded server."""
        return self.postgres_dsn and with_password(self.postgres_dsn, self.postgres_password)

    @property
    def kafka_access(self) -> KafkaAccess:
        """How Kafka is spoken to. A setting that is missing, or has no effect, is a ``SettingError``."""
        how = self.kafka_security
        tls, sasl = how.endswith("tls"), how.startswith("sasl")
        files = ("kafka_ca_file", "kafka_cert_file", "kafka_key_file")
        login = ("kafka_username", "kafka_password")
        for name in (*(() if tls else files), *(() if sasl else login)):
            if getattr(self, name) is not None:
                raise SettingError(f"BERTH_{name.upper()} has no effect: BERTH_KAFKA_SECURITY is {how}")
        for name in login if sasl else ():
            if getattr(self, name) is None:
                raise SettingError(f"BERTH_KAFKA_SECURITY is {how}, which needs BERTH_{name.upper()}")
        if (self.kafka_cert_file is None) != (self.kafka_key_file is None):
            raise SettingError("BERTH_KAFKA_CERT_FILE and BERTH_KAFKA_KEY_FILE go together")
        if self.kafka_bootstrap is None and (tls or sasl):
            raise SettingError(f"BERTH_KAFKA_SECURITY is {how}, but BERTH_KAFKA_BOOTSTRAP names no brokers")
        given = {name.removeprefix("kafka_"): getattr(self, name) for name in (*files, *login)}
        return KafkaAccess(tls=tls, sasl=sasl, mechanism=self.kafka_sasl_mechanism, **given)


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Return a sentence per variable that begins with BERTH_ and is no setting, with the nearest name."""
    known = {name for each in SETTINGS for name in (each.env, each.env_file) if name} | set(OTHER_VARIABLES)
    found = []
    for name in sorted(environ):
        if name.startswith("BERTH_") and name not in known and environ[name]:
            stems = sorted(each.removeprefix("BERTH_") for each in known)
            close = difflib.get_close_matches(name.removeprefix("BERTH_"), stems, 1)
            meant = (
                f"; did you mean BERTH_{close[0]}?" if close else "; `berth --help-all` lists all settings"
            )
            found.append(f"{name} is no setting and has no effect{meant}")
    return found


OTHER_VARIABLES = ("BERTH_KAFKA_JARS",)
"""What is read elsewhere: where `berth serve-dev kafka` finds the broker."""

SETTINGS = tuple(Setting(field.name, *field.metadata["setting"]) for field in dataclasses.fields(Settings))
"""All settings, in the order in which they are shown."""
