"""Dockerfile and Kubernetes example: everything they name is there, and they promise what they say.

Neither can run here. So each path, option, port, user and section that they use is looked up where
it is defined.
"""

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from iknow.cli.app import app

ROOT = Path(__file__).parents[1]
OBJECTS = list(yaml.safe_load_all((ROOT / "deploy" / "kubernetes.yaml").read_text("utf-8")))


def read_dockerfile():
    """Instructions as pairs of a word and the rest, with continued lines joined."""
    text = re.sub(r"^\s*#.*\n", "", (ROOT / "Dockerfile").read_text("utf-8"), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    return [tuple(line.split(None, 1)) for line in lines if line.strip()]


DOCKERFILE = read_dockerfile()


def last(word):
    return [rest for found, rest in DOCKERFILE if found == word][-1]


def options():
    return {name for each in get_command(app).commands["serve"].params for name in each.opts}


@pytest.fixture(scope="module")
def kinds():
    return {each["kind"]: each for each in OBJECTS}


@pytest.fixture(scope="module")
def pod(kinds):
    return kinds["Deployment"]["spec"]["template"]["spec"]


def test_the_base_image_is_a_certain_version_that_the_project_supports():
    base = next(rest for word, rest in DOCKERFILE if word == "FROM")
    assert re.fullmatch(r"python:3\.11\.\d+-slim-\w+ AS base", base)
    later = [rest.split()[0] for word, rest in DOCKERFILE if word == "FROM"][1:]
    assert set(later) == {"base"}


def test_what_is_copied_is_there_and_reaches_the_builder():
    passed = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    assert "*" in passed
    sources = [
        source
        for word, rest in DOCKERFILE
        if word == "COPY" and "--from" not in rest
        for source in rest.split()[:-1]
    ]
    assert {"src", "constraints.txt", "pyproject.toml"} <= set(sources)
    for source in sources:
        assert (ROOT / source).exists()
        assert f"!{source}" in passed


def test_the_sections_of_the_constraints_are_those_the_builder_cuts():
    (script,) = [rest for word, rest in DOCKERFILE if word == "RUN" and "sed " in rest]
    headings = re.findall(r"/\^(# [^/]+)/", script)
    constraints = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    places = [
        next(i for i, line in enumerate(constraints) if line.startswith(heading))
        for heading in headings
    ]
    development, installs, service = places[:3]
    assert installs < service < development
    pins = {
        re.split(r"[-_.]*==", line)[0].lower().replace("_", "-")
        for i, line in enumerate(constraints)
        if re.match(r"[\w.-]+==", line) and (i < installs or service < i < development)
    }
    expected = {"numpy", "msgspec", "starlette", "uvicorn", "httptools", "onnxruntime", "numba"}
    assert expected | {"psycopg-binary"} <= pins
    assert "hatchling" not in pins


def test_the_image_runs_as_a_user_who_owns_what_it_writes(pod):
    words = [word for word, _ in DOCKERFILE]
    user = last("USER")
    uid, gid = user.split(":")
    assert int(uid) > 0
    assert words.index("USER") < words.index("ENTRYPOINT")
    (setup,) = [rest for word, rest in DOCKERFILE if word == "RUN" and "useradd" in rest]
    assert f"--uid {uid} " in setup
    assert re.search(r"install -d -o iknow .*-m 0700 /opt/cache /data", setup)
    assert "XDG_CACHE_HOME=/opt/cache" in last("ENV")
    warmed = next(i for i, pair in enumerate(DOCKERFILE) if "warm-up" in pair[-1])
    assert words.index("USER") < warmed  # or the cache would belong to root, and not be trusted
    assert (pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsGroup"]) == (
        int(uid),
        int(gid),
    )


def test_the_commands_of_the_image_exist():
    commands = get_command(app).commands
    program, command, *arguments = json.loads(last("ENTRYPOINT"))
    assert program == "iknow"
    assert command in commands
    assert set(arguments[::2]) <= options()
    assert "warm-up" in commands
    assert last("EXPOSE") == arguments[1 + arguments.index("--port")]
    (check,) = [rest for word, rest in DOCKERFILE if word == "HEALTHCHECK"]
    program, flag, code = json.loads(check[check.index("[") :])
    compile(code, "HEALTHCHECK", "exec")
    assert (program, flag) == ("python", "-c")
    assert f"http://127.0.0.1:{last('EXPOSE')}/healthz" in code


def test_the_example_of_the_dockerfile_can_be_typed():
    text = (ROOT / "Dockerfile").read_text("utf-8")
    example = text[text.index("docker run") :].split("\n#\n")[0].replace("\\\n#", "")
    words = shlex.split(example)
    used = words[1 + words.index("iknow") :]
    assert {word for word in used if word.startswith("--")} <= options()


def test_kubernetes_starts_the_service_with_options_that_exist(pod):
    (container,) = pod["containers"]
    bundle, *given = container["args"]
    assert bundle.endswith(".iknow")
    names, values = zip(*(each.split("=", 1) for each in given), strict=True)
    assert set(names) <= options()
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    for value in values:
        if value.startswith("/"):
            assert any(value.startswith(path) for path in mounts), value
    volumes = {volume["name"] for volume in pod["volumes"]}
    assert volumes == {mount["name"] for mount in mounts.values()}
    assert set(mounts) >= {"/data", "/tmp"}  # all else is read-only


def test_kubernetes_asks_paths_and_ports_that_are_served(pod, kinds):
    pytest.importorskip("starlette")
    from iknow.serve.http import ENDPOINTS

    paths = {each.path for each in ENDPOINTS}
    (container,) = pod["containers"]
    (port,) = container["ports"]
    assert str(port["containerPort"]) == last("EXPOSE")
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        asked = container[name]["httpGet"]
        assert asked["path"] in paths
        assert asked["port"] == port["name"]
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    noted = kinds["Deployment"]["spec"]["template"]["metadata"]["annotations"]
    assert noted["prometheus.io/port"] == last("EXPOSE")
    assert noted["prometheus.io/path"] in paths
    assert kinds["Service"]["spec"]["ports"][0]["targetPort"] == port["name"]


def test_kubernetes_leaves_time_to_drain_and_one_writer(pod, kinds):
    (container,) = pod["containers"]
    (drain,) = [float(a.split("=")[1]) for a in container["args"] if a.startswith("--drain")]
    pause = float(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] > pause + 2 * drain
    assert kinds["Deployment"]["spec"]["replicas"] == 1
    assert kinds["Deployment"]["spec"]["strategy"] == {"type": "Recreate"}


def test_kubernetes_permits_as_little_as_possible(pod):
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_the_names_in_kubernetes_fit_together(pod, kinds):
    labels = kinds["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert kinds["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    assert kinds["Service"]["spec"]["selector"] == labels
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["tokens"]["secret"]["secretName"] == kinds["Secret"]["metadata"]["name"]
    claim = volumes["data"]["persistentVolumeClaim"]["claimName"]
    assert claim == kinds["PersistentVolumeClaim"]["metadata"]["name"]


def test_the_token_of_the_example_starts_no_service(kinds, tmp_path):
    pytest.importorskip("starlette")
    from iknow.errors import InputError
    from iknow.serve.tokens import read_tokens

    (tmp_path / "tokens").write_text(kinds["Secret"]["stringData"]["tokens"])
    with pytest.raises(InputError, match="can be guessed"):
        read_tokens(tmp_path / "tokens")
