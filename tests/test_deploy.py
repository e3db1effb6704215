"""The files in deploy/, checked without building an image or starting a cluster.

Schemas and syntax are left to the tools made for them: check-jsonschema, kubernetes-validate, `kubectl kustomize`,
`docker compose config` and hadolint. The last three are used where they are installed. What no tool can know is tested
here: that the commands in the files are commands of Pronk, that both sides agree on port and secrets, and that
start-or-resume starts, resumes and stops as it says.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import kubernetes_validate
import pytest
import typer
import yaml
from processes import command_line

import pronk
from pronk.cli.shell import app
from pronk.config import load_config
from pronk.transport.security import split_address

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
BASE = DEPLOY / "kubernetes" / "base"
START = DEPLOY / "start-or-resume"


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def passes(*command: str | Path) -> str:
    """Run a tool, which must report no error; return its output."""
    done = subprocess.run([*map(str, command)], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def needs(*command: str) -> None:
    """Skip the test where this command does not work."""
    if not shutil.which(command[0]) or subprocess.run(command, capture_output=True, timeout=60).returncode:
        pytest.skip(f"`{' '.join(command)}` does not work here")


# ---- the commands in the files, read by Pronk's own command line


def parsed(*words: str) -> dict[str, Any]:
    """The parameters that `pronk WORDS` would be called with; raises for what `pronk` does not know."""
    group = typer.main.get_command(app)
    context = group.make_context("pronk", [words[0]], resilient_parsing=True)
    command = group.get_command(context, words[0])
    assert command, f"there is no `pronk {words[0]}`"
    return command.make_context(words[0], list(words[1:]), parent=context).params


class Learner(NamedTuple):
    run: Path
    port: int
    secrets: set[str]
    max_actors: int | str


def learner_of(words: list[str]) -> Learner:
    """What `start-or-resume RUN PRESET ...` would start: reachable from other machines, with TLS and a token."""
    directory, preset, *rest = words
    params = parsed("learner", preset, "--run-dir", directory, *rest)
    gateway = load_config(params["source"], params["overrides"]).gateway
    host, port = split_address(str(gateway.address))
    assert host == "0.0.0.0"
    assert not gateway.insecure
    secrets = {gateway.certificate, gateway.private_key, gateway.token_file}
    assert None not in secrets
    return Learner(Path(directory), port, {str(file) for file in secrets}, gateway.max_actors)


class Actor(NamedTuple):
    host: str
    port: int
    secrets: set[str]


def actor_of(words: list[str]) -> Actor:
    """What `pronk actor ...` would connect to."""
    assert words[0] == "actor"
    params = parsed(*words)
    assert not params["insecure"]
    return Actor(*split_address(params["address"]), {str(params["ca"]), str(params["token_file"])})


def is_listening(run: Path) -> list[str]:
    """The health check: a learner's run directory holds its address while it listens (docs/cluster.md)."""
    return ["test", "-s", f"{run}/address"]


def test_misspelt_command_is_refused() -> None:
    good = ["/runs/a", "pong", "gateway.address=0.0.0.0:1", "gateway.certificate=c", "gateway.private_key=k"]
    learner_of([*good, "gateway.token_file=t"])
    with pytest.raises(Exception, match="token_fil"):
        learner_of([*good, "gateway.token_fil=t"])
    with pytest.raises(Exception, match="pung"):
        learner_of(["/runs/a", "pung"])
    with pytest.raises(Exception, match="--token"):
        actor_of(["actor", "learner:5050", "--token", "file"])


# ---- Dockerfile


def test_dockerfile_passes_hadolint() -> None:
    needs("hadolint", "--version")
    assert passes("hadolint", DEPLOY / "Dockerfile") == ""


def test_image_runs_pronk_without_a_shell_and_not_as_root() -> None:
    lines = text_of(DEPLOY / "Dockerfile").splitlines()
    assert 'ENTRYPOINT ["pronk"]' in lines  # a shell in between would not pass SIGTERM on
    assert "USER $UID" in lines


def test_build_context_is_what_the_dockerfile_copies() -> None:
    ignored = text_of(ROOT / ".dockerignore").splitlines()
    kept = [line.removeprefix("!") for line in ignored if line.startswith("!")]
    copied = [line.split() for line in text_of(DEPLOY / "Dockerfile").splitlines() if line.startswith("COPY")]
    assert "*" in ignored
    assert [name for name in kept if not (ROOT / name).exists() or not any(name in words for words in copied)] == []


# ---- start-or-resume


FRESH, RESUMED = ["learner pong --run-dir runs/a b run.seed=1"], ["learner runs/a b --resume run.seed=1"]


@pytest.fixture
def box(tmp_path: Path) -> Path:
    """A directory with a `bin/pronk` that prints its arguments and exits with 130."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "pronk").write_text('#!/bin/sh\necho "$$" "$@"\nexit 130\n')
    (tmp_path / "bin" / "pronk").chmod(0o755)
    return tmp_path


def start(box: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    path = f"{box / 'bin'}:{os.environ['PATH']}"
    return subprocess.Popen(
        [START, "runs/a b", "pong", *arguments],
        cwd=box,
        env=os.environ | {"PATH": path} | environment,
        text=True,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )


def started(box: Path, **environment: str) -> list[str]:
    """The arguments that pronk got. Its process and exit code must be the script's own, so that signals reach it."""
    with start(box, "run.seed=1", **environment) as process:
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    pid, *rest = output.split(" ")
    assert int(pid) == process.pid
    return " ".join(rest).splitlines()


def test_first_start_begins_the_run(box: Path) -> None:
    assert started(box) == FRESH
    (box / "runs" / "a b").mkdir(parents=True)
    assert started(box) == FRESH
    assert [path.name for path in (box / "runs").iterdir()] == ["a b"]


def test_later_start_resumes(box: Path) -> None:
    (box / "runs" / "a b" / "checkpoints").mkdir(parents=True)
    (box / "runs" / "a b" / "checkpoints" / "000000000640.pt").touch()
    (box / "runs" / "a b" / "summary.json").write_text('{\n  "outcome": "finished"\n}\n')
    assert started(box) == RESUMED
    (box / "runs" / "a b" / "summary.json").write_text('{\n  "outcome": "interrupted"\n}\n')
    assert started(box, WHEN_ENDED="wait") == RESUMED


def test_run_without_checkpoint_is_moved_aside(box: Path) -> None:
    (box / "runs" / "a b" / "checkpoints").mkdir(parents=True)
    (box / "runs" / "a b" / "config.yaml").touch()
    assert started(box) == FRESH
    (aside,) = (box / "runs").iterdir()
    assert aside.name.startswith("a b.without-checkpoint-")
    assert (aside / "config.yaml").exists()


def test_after_the_end_of_a_run_the_script_waits_for_sigterm(box: Path) -> None:
    (box / "runs" / "a b" / "checkpoints").mkdir(parents=True)
    (box / "runs" / "a b" / "summary.json").write_text(json.dumps({"outcome": "solved", "steps": 1}, indent=2))
    with start(box, WHEN_ENDED="wait") as process:
        try:
            assert process.stdout
            assert "has ended" in process.stdout.readline()
            time.sleep(0.2)
            assert process.poll() is None
            process.terminate()
            assert process.wait(timeout=30) == 0
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # its `sleep`, which the end of a container would have ended


def test_script_recognises_the_files_of_a_real_run(tmp_path: Path) -> None:
    run = tmp_path / "r"
    assert command_line("train", "catch", "transport=local", "run.total_steps=320", "--run-dir", run).code == 0
    assert list((run / "checkpoints").glob("[0-9]*.pt"))
    pattern = re.search(r"grep -qsE '(.*?)'", text_of(START))
    assert pattern
    assert re.search(pattern[1], text_of(run / "summary.json"))


# ---- compose.yaml


# As compose fills in `${NAME:-default}` where the environment has no NAME.
COMPOSE = yaml.safe_load(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text_of(DEPLOY / "compose.yaml")))
SERVICES = COMPOSE["services"]


def test_compose_schema() -> None:
    passes(
        *(sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"), DEPLOY / "compose.yaml"
    )


def test_compose_config() -> None:
    needs("docker", "compose", "version")
    assert passes("docker", "compose", "--file", DEPLOY / "compose.yaml", "config", "--quiet") == ""


def test_compose_learner_is_a_command_of_pronk() -> None:
    service = SERVICES["learner"]
    learner = learner_of(service["command"])
    assert service["entrypoint"] == [START.name]
    assert service["volumes"] == [f"runs:{learner.run.parent}"]
    assert service["healthcheck"]["test"] == ["CMD", *is_listening(learner.run)]
    assert learner.secrets == {f"/run/secrets/{name}" for name in service["secrets"]}


def test_compose_actors_reach_the_learner_and_do_not_get_its_key() -> None:
    service = SERVICES["actor"]
    actor = actor_of(service["command"])
    assert (actor.host, actor.port) == ("learner", learner_of(SERVICES["learner"]["command"]).port)
    assert actor.secrets == {f"/run/secrets/{name}" for name in service["secrets"]}
    assert "private_key" not in service["secrets"]


def test_compose_secrets_are_files_that_git_ignores() -> None:
    assert {Path(secret["file"]).parent for secret in COMPOSE["secrets"].values()} == {Path("secrets")}
    assert "deploy/secrets/" in text_of(ROOT / ".gitignore").splitlines()


# ---- Kubernetes


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(text_of(path)))


KUSTOMIZATION = documents(BASE / "kustomization.yaml")[0]
MANIFESTS = [each for name in KUSTOMIZATION["resources"] for each in documents(BASE / name)]
SECRET = documents(BASE / "secret.example.yaml")[0]
BY_KIND = {each["kind"]: each for each in MANIFESTS}
LEARNER, ACTORS, SERVICE = BY_KIND["StatefulSet"], BY_KIND["Deployment"], BY_KIND["Service"]


def container(owner: dict[str, Any]) -> dict[str, Any]:
    (only,) = owner["spec"]["template"]["spec"]["containers"]
    return only


def labels(owner: dict[str, Any]) -> dict[str, str]:
    return owner["spec"]["template"]["metadata"]["labels"]


def secrets_of(owner: dict[str, Any]) -> set[str]:
    """The files that the pod finds under /secrets, if the secret is as the example says."""
    (volume,) = [each["secret"] for each in owner["spec"]["template"]["spec"]["volumes"] if "secret" in each]
    assert volume["secretName"] == SECRET["metadata"]["name"]
    return {f"/secrets/{item['path']}" for item in volume.get("items", [{"path": key} for key in SECRET["stringData"]])}


@pytest.mark.parametrize("each", [*MANIFESTS, SECRET], ids=lambda each: each["kind"])
def test_kubernetes_schema(each: dict[str, Any]) -> None:
    for version in ("1.29", kubernetes_validate.latest_version()):
        assert kubernetes_validate.validate(each, version, strict=True), "the version that it was checked against"


@pytest.mark.parametrize("folder", ["base", "gpu"])
def test_kustomize_builds(folder: str) -> None:
    needs("kubectl", "version", "--client")
    built = list(yaml.safe_load_all(passes("kubectl", "kustomize", DEPLOY / "kubernetes" / folder)))
    assert sorted(each["kind"] for each in built) == sorted(each["kind"] for each in MANIFESTS)
    (learner,) = [each for each in built if each["kind"] == "StatefulSet"]
    assert ("nvidia.com/gpu" in container(learner)["resources"]["limits"]) == (folder == "gpu")
    assert container(learner)["args"] == container(LEARNER)["args"]


def test_pod_of_the_learner_runs_a_command_of_pronk() -> None:
    learner = learner_of(container(LEARNER)["args"])
    assert container(LEARNER)["command"] == [START.name]
    assert container(LEARNER)["ports"] == [{"name": "grpc", "containerPort": learner.port}]
    assert container(LEARNER)["readinessProbe"]["exec"]["command"] == is_listening(learner.run)
    assert learner.secrets == secrets_of(LEARNER)
    mounts = {mount["name"]: mount["mountPath"] for mount in container(LEARNER)["volumeMounts"]}
    assert mounts["runs"] == str(learner.run.parent)


def test_pods_of_actors_reach_the_learner_and_do_not_get_its_key() -> None:
    actor = actor_of(container(ACTORS)["args"])
    assert (actor.host, actor.port) == (SERVICE["metadata"]["name"], SERVICE["spec"]["ports"][0]["port"])
    assert actor.secrets == secrets_of(ACTORS)
    assert not any("key" in file for file in secrets_of(ACTORS))


def test_service_and_network_policy_select_the_right_pods() -> None:
    policy = BY_KIND["NetworkPolicy"]["spec"]
    assert SERVICE["spec"]["selector"] == policy["podSelector"]["matchLabels"] == labels(LEARNER)
    (rule,) = policy["ingress"]
    assert rule["from"] == [{"podSelector": {"matchLabels": labels(ACTORS)}}]
    assert [port["port"] for port in rule["ports"]] == [learner_of(container(LEARNER)["args"]).port]


@pytest.mark.parametrize("owner", [LEARNER, ACTORS], ids=["learner", "actor"])
def test_pods_meet_the_restricted_security_standard(owner: dict[str, Any]) -> None:
    inner, outer = container(owner)["securityContext"], owner["spec"]["template"]["spec"]["securityContext"]
    assert outer["runAsNonRoot"]
    assert outer["seccompProfile"] == {"type": "RuntimeDefault"}
    assert inner["allowPrivilegeEscalation"] is False
    assert inner["capabilities"] == {"drop": ["ALL"]}
    assert inner["readOnlyRootFilesystem"]


def test_autoscaler_asks_for_no_more_actors_than_the_learner_takes() -> None:
    spec = BY_KIND["HorizontalPodAutoscaler"]["spec"]
    assert spec["scaleTargetRef"]["name"] == ACTORS["metadata"]["name"]
    assert "replicas" not in ACTORS["spec"]  # each `kubectl apply` would reset the autoscaler's choice
    assert spec["maxReplicas"] <= learner_of(container(LEARNER)["args"]).max_actors


def test_example_secret_is_empty_and_not_applied() -> None:
    assert set(SECRET["stringData"].values()) == {""}
    assert "secret.example.yaml" not in KUSTOMIZATION["resources"]


# ---- versions


def test_images_have_the_version_of_the_package() -> None:
    assert {service["image"] for service in SERVICES.values()} == {f"pronk:{pronk.__version__}"}
    assert [image["newTag"] for image in KUSTOMIZATION["images"]] == [pronk.__version__]
    assert f"pronk:{pronk.__version__}-cuda" in text_of(DEPLOY / "kubernetes" / "gpu" / "kustomization.yaml")
    assert f"--tag pronk:{pronk.__version__}" in text_of(DEPLOY / "Dockerfile")
