"""Translates Kafka's faults: whatever does not answer is ``Unavailable``, and nothing waits for ever."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Coroutine
from typing import Any, NamedTuple, TypeVar

from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    IllegalSaslStateError,
    KafkaConnectionError,
    KafkaError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
    SaslAuthenticationFailed,
    TopicAuthorizationFailedError,
    UnsupportedSaslMechanismError,
)

from domain.model.errors import BerthError, FieldError, LogRefused, LogTruncated, Unavailable
from services.adapters.kafka.internals import connect_once
from services.config import KafkaAccess, SettingError

_RETRY_BACKOFF_MS = 200
_UNCUT_SECONDS_MAX = 1.0

PLAINTEXT = KafkaAccess()

T = TypeVar("T")


class Cluster(NamedTuple):
    """A Kafka cluster, how long we wait for one answer of it, and our name to it."""

    bootstrap: str
    timeout_seconds: float
    access: KafkaAccess = PLAINTEXT

    @property
    def options(self) -> dict[str, Any]:
        """The options of every client of the library. The files are read again: certificates are renewed."""
        access = self.access
        protocol = ("SASL_" if access.sasl else "") + ("SSL" if access.tls else "PLAINTEXT")
        return {
            "bootstrap_servers": self.bootstrap,
            "request_timeout_ms": int(self.timeout_seconds * 1000),
            "retry_backoff_ms": _RETRY_BACKOFF_MS,
            "security_protocol": protocol,
            "ssl_context": _context(access) if access.tls else None,
            "sasl_mechanism": access.mechanism,
            "sasl_plain_username": access.username,
            "sasl_plain_password": access.password,
        }


def _context(access: KafkaAccess) -> ssl.SSLContext:
    """Return how brokers are made sure of: by an authority that vouches for them, and by their name."""
    try:
        context = ssl.create_default_context(cafile=access.ca_file)
    except OSError as error:
        raise SettingError(f"BERTH_KAFKA_CA_FILE names {access.ca_file}: {_reason(error)}") from None
    if access.cert_file is not None:
        try:
            context.load_cert_chain(access.cert_file, access.key_file, password=lambda: "")
        except OSError as error:
            files = f"{access.cert_file} and {access.key_file}"
            message = f"BERTH_KAFKA_CERT_FILE and BERTH_KAFKA_KEY_FILE name {files}: {_reason(error)}"
            raise SettingError(message) from None
    return context


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return "not PEM, no pair, or with a passphrase" if error.reason is None else error.reason.lower()
    return error.strerror or str(error)


@contextlib.asynccontextmanager
async def guarded(cluster: Cluster, extra_seconds: float = 0.0, topic: str = "") -> AsyncIterator[None]:
    """Translate the faults of the client library; give up ``extra_seconds`` after the time of one answer."""
    try:
        async with asyncio.timeout(cluster.timeout_seconds + extra_seconds):
            yield
    except OffsetOutOfRangeError as error:
        ((at, offset),) = error.args[0].items()
        raise LogTruncated(f"{at.topic}/{at.partition} does not hold offset {offset}") from error
    except MessageSizeTooLargeError as error:
        raise FieldError("value", "larger than max.message.bytes of the topic") from error
    except (TopicAuthorizationFailedError, ClusterAuthorizationFailedError) as error:
        named = topic or ", ".join(map(str, error.args))
        raise LogRefused(f"Kafka at {cluster.bootstrap} does not allow us this with topic {named}") from error
    except KafkaConnectionError as error:
        raise await _why_not(cluster) from error
    except (KafkaError, OSError, TimeoutError) as error:
        detail = str(error) or type(error).__name__
        raise Unavailable(f"Kafka at {cluster.bootstrap} does not answer: {detail}") from error


async def _why_not(cluster: Cluster) -> BerthError:
    """Connect once more, to learn what the library keeps to itself: that we are refused, or the broker is."""
    away = Unavailable(f"Kafka at {cluster.bootstrap} does not answer: no connection")
    if not (cluster.access.tls or cluster.access.sasl):
        return away
    try:
        await connect_once(cluster.options)
    except (OSError, KafkaError, TimeoutError) as error:
        reason = _refusal(error.__cause__ or error)
        return LogRefused(f"Kafka at {cluster.bootstrap}: {reason}") if reason else away
    return away


def _refusal(error: BaseException) -> str | None:
    """Return why a connection will not come about before a setting is changed; None where it may."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the broker's certificate is not to be trusted (BERTH_KAFKA_CA_FILE): {error.verify_message}"
    if isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or ""):
        return f"the broker does not take our certificate (BERTH_KAFKA_CERT_FILE): {error.reason}"
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        return "the broker does not speak TLS (BERTH_KAFKA_SECURITY)"
    if isinstance(error, SaslAuthenticationFailed):
        return "the broker does not know this BERTH_KAFKA_USERNAME with this BERTH_KAFKA_PASSWORD"
    if isinstance(error, UnsupportedSaslMechanismError):
        return "the broker does not know this BERTH_KAFKA_SASL_MECHANISM"
    if isinstance(error, IllegalSaslStateError):
        return "the broker asks for no password here (BERTH_KAFKA_SECURITY)"
    return None


async def uncut(work: Coroutine[Any, Any, T]) -> T:
    """Await work that a cancellation of ours does not cut in its middle, for a second at most.

    Cut while it opens or closes a connection, the library leaves one open that no caller can close.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await _settle(task, _UNCUT_SECONDS_MAX)
        raise


async def finish(cluster: Cluster, closing: Coroutine[Any, Any, None]) -> None:
    """Await a closing call of the client library for a limited time, and ignore its failure.

    It runs as a task of its own, because the library lets the cancellation of its inner tasks escape, which
    would look like a cancellation of ours.
    """
    await _settle(asyncio.ensure_future(closing), cluster.timeout_seconds)


async def _settle(task: asyncio.Future[Any], seconds_max: float) -> None:
    """Wait until a task has ended, for a limited time; then cancel it. Its failure is ignored."""
    await asyncio.wait([task], timeout=seconds_max)
    if not task.done():
        task.cancel()
    elif not task.cancelled():
        task.exception()
