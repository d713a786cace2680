"""The files of examples/deploy: each is parsed, held against the command line, and run as far as this machine can."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import yaml

from locus import __version__
from locus.cli import parser
from locus.cli.serve import STORE_VARIABLE, TOKENS_VARIABLE
from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory.backends import HTTPCheckpointer
from locus.memory.backends.http import client as http_client
from locus.server.bodies import Limits
from locus.server.connections import KEEP_ALIVE_SECONDS
from locus.server.logs import KEY_VARIABLE
from locus.server.middleware import PUBLIC
from tests.docs.shell import EXTRAS
from tests.server.running import WRITER, Serving, serving
from tests.servers.nginx import NginxServer
from tests.servers.ports import free_port
from tests.servers.tls import write_certificate

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "deploy"
KNOWN_VARIABLES = {STORE_VARIABLE, TOKENS_VARIABLE, KEY_VARIABLE}
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text())
KUBERNETES = list(yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text()))
UNIT_TEXT = (FOLDER / "locus.service").read_text()


def container() -> dict[str, Any]:
    found: dict[str, Any]
    (found,) = next(one for one in KUBERNETES if one["kind"] == "Deployment")["spec"]["template"]["spec"]["containers"]
    return found


def unit() -> configparser.ConfigParser:
    found = configparser.ConfigParser(interpolation=None, strict=True)
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read_string(UNIT_TEXT)
    return found


def unit_command() -> list[str]:
    return shlex.split(unit()["Service"]["ExecStart"])[1:]


COMMANDS = {
    "compose": COMPOSE["services"]["locus"]["command"],
    "kubernetes": container()["args"],
    "systemd": unit_command(),
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_the_command_line_knows_every_option(command: Sequence[str]) -> None:
    options = parser().parse_args(command)
    assert options.port == 8700
    assert options.token_file, "so that tokens can be changed while it runs"
    assert options.token == [], "a list of processes would show it"
    assert options.store is None, "that, too"


@pytest.mark.parametrize("example", ["compose", "systemd"])  # that for Kubernetes has the same options
def test_the_server_runs_with_these_options_and_reads_its_tokens_again(example: str, tmp_path: Path) -> None:
    command = COMMANDS[example]
    tokens = tmp_path / "tokens"
    tokens.write_text(f"{WRITER}\n")
    tokens.chmod(0o600)
    options = [str(tokens) if word == parser().parse_args(command).token_file else word for word in command[1:]]
    port = free_port()
    given = ["127.0.0.1" if word == "0.0.0.0" else str(port) if word == "8700" else word for word in options]
    variables = {STORE_VARIABLE: "sqlite:///t.db", KEY_VARIABLE: "at-least-16-characters"}
    with serving(tmp_path, None, *given, port=port, **variables) as server:
        first = json.loads(server.log.read_text().splitlines()[0])
        assert (first["address"], first["tokens"]) == (server.url, 1)
        server.process.send_signal(signal.SIGHUP)
        until = time.monotonic() + 60
        while "the tokens were read again" not in server.log.read_text():
            assert time.monotonic() < until, server.log.read_text()
            time.sleep(0.02)


def test_compose_waits_for_the_database_and_keeps_its_data_and_no_secret() -> None:
    services = COMPOSE["services"]
    locus, db = services["locus"], services["db"]
    assert locus["depends_on"] == {"db": {"condition": "service_healthy"}}
    assert set(locus["environment"]) <= KNOWN_VARIABLES
    assert re.fullmatch(r"postgres:\d+", db["image"])
    assert db["volumes"] == ["threads:/var/lib/postgresql"], "where the image keeps its data from version 18 on"
    assert "threads" in COMPOSE["volumes"]
    assert locus["secrets"] == ["tokens"]
    assert COMPOSE["secrets"]["tokens"]["file"] == "./tokens"
    assert parser().parse_args(locus["command"]).token_file == "/run/secrets/tokens"
    assert locus["ports"] == ["127.0.0.1:8700:8700"]
    (probed,) = re.findall(r"http://127.0.0.1:8700(/\w+)", " ".join(locus["healthcheck"]["test"]))
    assert probed in PUBLIC
    text = (FOLDER / "compose.yaml").read_text()
    example = dict(line.split("=", 1) for line in (FOLDER / "example.env").read_text().splitlines() if "=" in line)
    assert set(re.findall(r"\$\{(\w+)", text)) == set(example)
    grace = parser().parse_args(locus["command"]).grace
    assert int(locus["stop_grace_period"].removesuffix("s")) > grace


def test_the_image_has_what_the_server_imports() -> None:
    text = (FOLDER / "Dockerfile").read_text()
    ((name, extras),) = re.findall(r'"([\w-]+)\[([\w,]+)\]"', text)
    assert name == "locus-state"
    assert {"server", "http", "postgresql"} == set(extras.split(",")) <= set(EXTRAS)
    assert f"EXPOSE {parser().parse_args(container()['args']).port}" in text
    pod = next(one for one in KUBERNETES if one["kind"] == "Deployment")["spec"]["template"]["spec"]
    assert f"--uid {pod['securityContext']['runAsUser']} " in text


def test_kubernetes_finds_its_pods_ports_and_files() -> None:
    kinds = {one["kind"]: one for one in KUBERNETES}
    assert set(kinds) == {"Deployment", "Service", "PodDisruptionBudget"}
    deployment, service = kinds["Deployment"]["spec"], kinds["Service"]["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    assert deployment["selector"]["matchLabels"] == service["selector"] == labels
    assert kinds["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    one, options = container(), parser().parse_args(container()["args"])
    assert [port["containerPort"] for port in one["ports"]] == [options.port]
    assert service["ports"][0]["targetPort"] == one["ports"][0]["name"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert one[probe]["httpGet"]["path"] in PUBLIC
        assert one[probe]["httpGet"]["port"] == one["ports"][0]["name"]
    assert {variable["name"] for variable in one["env"]} <= KNOWN_VARIABLES
    mounted = {mount["name"]: mount for mount in one["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in deployment["template"]["spec"]["volumes"]}
    assert set(mounted) == set(volumes)
    (item,) = volumes["tokens"]["secret"]["items"]
    assert f"{mounted['tokens']['mountPath']}/{item['path']}" == options.token_file
    assert "subPath" not in mounted["tokens"], "it would never change"
    pod = deployment["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > options.grace + 5
    memory = int(one["resources"]["limits"]["memory"].removesuffix("Mi"))
    assert memory * 1024 * 1024 > Limits.memory_bytes


KNOWN_KEYS = {
    "Unit": {"Description", "Wants", "After"},
    "Service": {
        "Type", "User", "Group", "EnvironmentFile", "ExecStart", "ExecReload", "Restart", "RestartSec",
        "TimeoutStopSec", "KillMode", "StateDirectory", "StateDirectoryMode", "UMask", "LimitNOFILE",
        "NoNewPrivileges", "ProtectSystem", "ProtectHome", "PrivateTmp", "PrivateDevices", "ProtectKernelTunables",
        "ProtectKernelModules", "ProtectControlGroups", "RestrictAddressFamilies", "RestrictNamespaces",
        "RestrictSUIDSGID", "LockPersonality", "CapabilityBoundingSet",
    },
    "Install": {"WantedBy"},
}  # fmt: skip
"""Of systemd.unit(5), systemd.service(5) and systemd.exec(5)."""


def test_the_unit_has_known_keys_and_ends_later_than_the_server() -> None:
    found = unit()
    assert {section: set(found[section]) for section in found.sections()} == KNOWN_KEYS
    assert "-HUP $MAINPID" in found["Service"]["ExecReload"]
    assert int(found["Service"]["TimeoutStopSec"]) > parser().parse_args(unit_command()).grace
    told = set(re.findall(r"^#   (LOCUS_\w+)=", UNIT_TEXT, re.MULTILINE))
    assert told == {STORE_VARIABLE, KEY_VARIABLE}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="this machine has no systemd")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    file = tmp_path / "locus.service"
    file.write_text(UNIT_TEXT.replace("/opt/locus/bin/locus", sys.executable))
    command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(file)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_examples_name_this_version() -> None:
    for name in ("compose.yaml", "kubernetes.yaml"):
        (tag,) = re.findall(r"image: \S*locus:(\S+)", (FOLDER / name).read_text())
        assert tag == __version__


@pytest.fixture
def locus(tmp_path: Path) -> Iterator[Serving]:
    (tmp_path / "tokens").write_text(f"{WRITER}\n")
    (tmp_path / "tokens").chmod(0o600)
    with serving(tmp_path, "memory", "--token-file", "tokens") as server:
        yield server


def site_of(locus: Serving, certificate: Path, port: int) -> str:
    """The example with the ports and files of this test."""
    site = (FOLDER / "nginx.conf").read_text()
    changes = {
        "127.0.0.1:8700": f"127.0.0.1:{locus.port}",
        "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        "    listen [::]:443 ssl;\n": "",
        "/etc/nginx/tls/locus.pem": str(certificate),
        "/etc/nginx/tls/locus.key": str(certificate),
    }
    for old, new in changes.items():
        assert old in site
        site = site.replace(old, new)
    return site


@pytest.mark.timeout(900)  # the first run downloads nginx
async def test_nginx_passes_everything_on_as_it_came(
    locus: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = tmp_path / "certificate.pem"
    write_certificate(certificate)
    nginx = NginxServer(tmp_path / "nginx", "")
    nginx.site = site_of(locus, certificate, nginx.port)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    http_client.tls.cache_clear()
    try:
        with nginx:
            await _use(nginx)
    finally:
        http_client.tls.cache_clear()


async def _use(nginx: NginxServer) -> None:
    strange = "a tenant/with//slashes/../and %2F? #ü"
    state = AgentState(agent_id="a").with_message(Message.user("word " * 400_000))
    async with HTTPCheckpointer(nginx.url, token=WRITER) as checkpointer:
        await checkpointer.save(state, strange)
        assert await checkpointer.load(strange) == state
        assert await checkpointer.list_threads() == [strange]
    headers = {"Authorization": f"Bearer {WRITER}"}
    context = httpx.create_ssl_context()
    async with httpx.AsyncClient(base_url=nginx.url, headers=headers, verify=context) as client:
        path = f"/threads/{quote(strange, safe='')}/checkpoints"
        assert len((await client.get(path)).json()["checkpoints"]) == 1
        named = await client.get("/health", headers={"X-Request-ID": "job-7"})
        assert named.headers["x-request-id"] == "job-7"
        assert re.fullmatch(r"[0-9a-f]{32}", (await client.get("/health")).headers["x-request-id"])
        assert (await client.get("/metrics")).status_code == 403
        assert (await client.get("/threads", headers={"Authorization": "Bearer no"})).json()[
            "code"
        ] == "unauthenticated"


def test_nginx_has_the_limits_of_the_server() -> None:
    site = (FOLDER / "nginx.conf").read_text()
    defaults = parser().parse_args(["serve"])
    assert f"client_max_body_size {defaults.max_body:g}m;" in site
    seconds = {name: int(value) for name, value in re.findall(r"(\w+_timeout) (\d+)s;", site)}
    assert seconds["keepalive_timeout"] < KEEP_ALIVE_SECONDS
    for ours, theirs in (("body_timeout", "proxy_send_timeout"), ("query_timeout", "proxy_read_timeout")):
        assert seconds[theirs] > getattr(defaults, ours)
