"""Who can reach the listeners, and can he read along: TLS of the API, and the metrics of worker and relay."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import pytest_asyncio
import trustme
from prometheus_client import CollectorRegistry

from services.cli.options import CommandError
from services.cli.source import Source, fetch
from services.config import Settings
from services.listening import ServeError, bind, tls_of
from services.metrics import Heartbeat, process_registry
from services.processes import served_metrics
from services.serving import Limits, serve_http
from tests.integration.commands import BERTH, environment
from tests.security.running import api, laid_down

BIG_BYTES = 32 << 20


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def dsn(embedded_dsn: str) -> AsyncIterator[str]:
    """Return a ledger that is laid down and empty."""
    async with laid_down(embedded_dsn) as found:
        yield found


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a certificate of this machine, its key, and who vouches for it."""
    folder, ca = tmp_path_factory.mktemp("tls"), trustme.CA()
    issued = ca.issue_cert("localhost", "127.0.0.1")
    ca.cert_pem.write_to_path(folder / "ca.pem")
    issued.private_key_pem.write_to_path(folder / "key.pem")
    for part in issued.cert_chain_pems:
        part.write_to_path(folder / "cert.pem", append=True)
    return folder


@pytest.fixture(scope="module")
def url(dsn: str, files: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of an API that speaks TLS."""
    told = {"BERTH_API_TLS_CERT": str(files / "cert.pem"), "BERTH_API_TLS_KEY": str(files / "key.pem")}
    with api(dsn, tmp_path_factory.mktemp("api"), told=told) as found:
        yield found


def test_nobody_reads_along(url: str, files: Path) -> None:
    assert url.startswith("https://127.0.0.1:")
    trusting = ssl.create_default_context(cafile=files / "ca.pem")
    assert httpx.get(f"{url}/v1/pods", verify=trusting, trust_env=False).status_code == 200
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(f"{url}/v1/pods", trust_env=False)
    with pytest.raises(httpx.HTTPError):
        httpx.get(f"http{url.removeprefix('https')}/v1/pods", trust_env=False)


async def test_a_command_that_speaks_http_to_it_is_asked_whether_it_is_https(url: str) -> None:
    async with contextlib.aclosing(Source(f"http{url.removeprefix('https')}")) as source:
        with pytest.raises(CommandError, match=r"is it https://\?"):
            await fetch(source, "/v1/pods")


def test_the_commands_check_whom_they_show_their_key(url: str, files: Path, tmp_path: Path) -> None:
    def get(**more: str) -> subprocess.CompletedProcess[str]:
        env = environment(tmp_path) | {"BERTH_API_URL": url, "BERTH_API_KEY": "berth_x"} | more
        command = [*BERTH, "get", "shards"]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)

    assert get(BERTH_API_CA=str(files / "ca.pem")).returncode == 0
    refused = get()
    assert (refused.returncode, "BERTH_API_CA" in refused.stderr) == (1, True), refused.stderr
    missing = get(BERTH_API_CA=str(files / "nowhere.pem"))
    assert (missing.returncode, "holds no certificates" in missing.stderr) == (1, True), missing.stderr


def test_a_certificate_needs_its_key(files: Path) -> None:
    context = tls_of(files / "cert.pem", files / "key.pem")
    assert context
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    with pytest.raises(ServeError, match="belong together"):
        tls_of(files / "cert.pem", None)
    with pytest.raises(ServeError, match="are no certificate and key"):
        tls_of(files / "ca.pem", files / "key.pem")
    with pytest.raises(ServeError, match="No such file"):
        tls_of(files / "nowhere.pem", files / "key.pem")


@contextlib.asynccontextmanager
async def served(files: Path, limits: Limits) -> AsyncIterator[tuple[str, int, ssl.SSLContext]]:
    """Serve a large answer with TLS; return where, and what a client has to trust."""

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * BIG_BYTES})

    listening = bind("127.0.0.1", 0, move=False)
    tls = tls_of(files / "cert.pem", files / "key.pem")
    serving = asyncio.create_task(serve_http(answer, [listening], limits, tls))
    try:
        yield (*listening.getsockname(), ssl.create_default_context(cafile=files / "ca.pem"))
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


async def test_who_never_agrees_on_tls_shuts_nobody_out(files: Path) -> None:
    async with served(files, Limits(connections_max=10, head_seconds_max=2.0)) as (host, port, trusting):
        crowd = [await asyncio.open_connection(host, port) for _ in range(50)]
        async with httpx.AsyncClient(verify=trusting, trust_env=False) as client:
            assert len((await client.get(f"https://{host}:{port}/")).content) == BIG_BYTES
        async with asyncio.timeout(5):
            for reader, writer in crowd:
                with contextlib.suppress(ConnectionError):
                    while await reader.read(100):
                        pass
                writer.close()


async def test_an_ordinary_client_of_an_encrypted_api_leaves_no_error_in_the_log(
    files: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        served(files, Limits()) as (host, port, trusting),
        httpx.AsyncClient(verify=trusting, trust_env=False) as client,
    ):
        assert len((await client.get(f"https://{host}:{port}/")).content) == BIG_BYTES
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


async def test_an_encrypted_answer_that_nobody_takes_is_cut(files: Path) -> None:
    async with served(files, Limits(pace_seconds=1.0)) as (host, port, trusting):
        reader, writer = await asyncio.open_connection(host, port, ssl=trusting)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.sleep(4)
        taken_bytes = 0
        async with asyncio.timeout(5):
            with contextlib.suppress(OSError):
                while got := await reader.read(1 << 20):
                    taken_bytes += len(got)
        assert taken_bytes < BIG_BYTES
        writer.transport.abort()


def test_an_open_api_without_tls_says_so(dsn: str, tmp_path: Path) -> None:
    with api(dsn, tmp_path, told={"BERTH_API_HOST": "0.0.0.0"}):
        pass
    assert "unencrypted" in (tmp_path / "api.log").read_text()


# ------------------------------------------------------------------------------ metrics of worker and relay


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def test_metrics_are_for_this_machine_alone(dsn: str, tmp_path: Path) -> None:
    """They were on all addresses, without a key."""
    port = free_port()
    env = environment(tmp_path) | {"BERTH_POSTGRES_DSN": dsn, "BERTH_METRICS_PORT": str(port)}
    with subprocess.Popen([*BERTH, "relay"], env=env, stderr=subprocess.PIPE, text=True) as relay:
        assert relay.stderr is not None
        assert "is up" in relay.stderr.readline()
        listening = [each for each in psutil.Process(relay.pid).net_connections() if each.status == "LISTEN"]
        relay.terminate()
    assert [tuple(each.laddr) for each in listening] == [("127.0.0.1", port)]


def test_beyond_this_machine_metrics_need_a_key() -> None:
    registry, heartbeat = CollectorRegistry(), Heartbeat()
    told = Settings(metrics_host="0.0.0.0", metrics_port=free_port())
    with pytest.raises(ServeError, match="BERTH_METRICS_KEY_FILE"), served_metrics(told, registry, heartbeat):
        pass


def test_whoever_has_no_key_sees_no_metrics_but_whether_it_lives() -> None:
    told = Settings(metrics_key="open sesame", metrics_port=free_port())
    url = f"http://127.0.0.1:{told.metrics_port}"
    with served_metrics(told, process_registry(), Heartbeat()), httpx.Client(trust_env=False) as client:
        assert client.get(f"{url}/healthz").json()["status"] == "ok"
        for key in ("", "Bearer", "Bearer open", "Basic open sesame", "open sesame", "Bearer \xff"):
            answer = client.get(f"{url}/metrics", headers=[(b"Authorization", key.encode("latin-1"))])
            assert answer.status_code == 401
            assert answer.json()["error"]["code"] == "unauthorized"
            assert "python_info" not in answer.text
        good = client.get(f"{url}/metrics", headers={"Authorization": "Bearer open sesame"})
        assert "python_info" in good.text
