"""The files in ``deploy`` hold to their schemas, and to what the package itself says of budgets, folders and keys."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from platform_worker.building.models import Worker
from platform_worker.cli import COMMANDS
from platform_worker.sources.redis.settings import RedisSettings
from platform_worker.sources.redis.worker_store import base_of

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
#: The oldest supported version, and a new one.
KUBERNETES = ("1.29", "1.33")
#: What a stop may take at most, in seconds, by the default settings.
BUDGET = (Worker().stop_timeout_ms + 2 * Worker().force_kill_timeout_ms) / 1000
#: What is used of KEDA's ``ScaledObject``, as its reference has it; nothing else may be there.
SCALED_OBJECT = {
    "type": "object",
    "additionalProperties": False,
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "keda.sh/v1alpha1"},
        "kind": {"const": "ScaledObject"},
        "metadata": {"type": "object", "required": ["name"]},
        "spec": {
            "type": "object",
            "additionalProperties": False,
            "required": ["scaleTargetRef", "triggers"],
            "properties": {
                "scaleTargetRef": {"type": "object", "required": ["name"]},
                "minReplicaCount": {"type": "integer", "minimum": 0},
                "maxReplicaCount": {"type": "integer", "minimum": 1},
                "pollingInterval": {"type": "integer", "minimum": 1},
                "cooldownPeriod": {"type": "integer", "minimum": 0},
                "advanced": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {"horizontalPodAutoscalerConfig": {"type": "object"}},
                },
                "triggers": {
                    "type": "array",
                    "minItems": 1,
                    "items": {
                        "type": "object",
                        "additionalProperties": False,
                        "required": ["type", "metadata"],
                        "properties": {
                            "type": {"const": "redis"},
                            "metadata": {
                                "type": "object",
                                "required": ["address", "listName", "listLength"],
                                "additionalProperties": {"type": "string"},
                            },
                        },
                    },
                },
            },
        },
    },
}


def documents(name: str) -> list[dict[str, Any]]:
    """Those of a file, by kind."""
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def deployment() -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in documents("kubernetes/deployment.yaml") if one["kind"] == "Deployment")
    return found


def pod() -> dict[str, Any]:
    found: dict[str, Any] = deployment()["spec"]["template"]["spec"]
    return found


@pytest.mark.parametrize("version", KUBERNETES)
def test_the_manifests_hold_to_the_strict_schemas(version: str) -> None:
    for document in documents("kubernetes/deployment.yaml"):
        kubernetes_validate.validate(document, version, strict=True)


def test_the_scaled_object_scales_the_deployment_by_the_keys_of_the_store() -> None:
    (scaled,) = documents("kubernetes/keda.yaml")
    jsonschema.validate(scaled, SCALED_OBJECT)
    assert deployment()["metadata"]["name"] == scaled["spec"]["scaleTargetRef"]["name"]
    base = base_of(RedisSettings.model_fields["prefix"].default)
    names = [trigger["metadata"]["listName"] for trigger in scaled["spec"]["triggers"]]
    assert [f"{base}waiting:default", f"{base}leases"] == names
    assert str(Worker().workers) == scaled["spec"]["triggers"][1]["metadata"]["listLength"]


def test_the_scalers_schema_refuses_what_is_misspelt() -> None:
    (scaled,) = documents("kubernetes/keda.yaml")
    scaled["spec"]["minReplicas"] = 1
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(scaled, SCALED_OBJECT)


def test_every_grace_is_longer_than_the_budgets() -> None:
    assert pod()["terminationGracePeriodSeconds"] > BUDGET
    (compose,) = documents("compose.yaml")
    assert float(compose["services"]["worker"]["stop_grace_period"].removesuffix("s")) > BUDGET


def test_probes_run_commands_that_exist_and_wait_longer_than_those_take() -> None:
    """``status`` and ``health`` give up after a second; liveness does not ask whether the pool can take work."""
    container = pod()["containers"][0]
    probes = {name: container[f"{name}Probe"] for name in ("startup", "readiness", "liveness")}
    assert {"startup": ["worker", "health"], "readiness": ["worker", "health"], "liveness": ["worker", "status"]} == {
        name: probe["exec"]["command"] for name, probe in probes.items()
    }
    assert all(probe["timeoutSeconds"] > 1 for probe in probes.values())
    startup = probes["startup"]
    assert startup["periodSeconds"] * startup["failureThreshold"] > 2 * Worker().start_timeout_ms / 1000
    assert {"health", "status", "start"} <= COMMANDS.keys()


def test_nothing_runs_as_root_or_writes_outside_of_its_folders() -> None:
    assert (True, 10001) == (pod()["securityContext"]["runAsNonRoot"], pod()["securityContext"]["runAsUser"])
    container = pod()["containers"][0]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"/srv/app/var/tmp", "/tmp"} == {mount["mountPath"] for mount in container["volumeMounts"]}
    (compose,) = documents("compose.yaml")
    worker = compose["services"]["worker"]
    assert (True, ["ALL"]) == (worker["read_only"], worker["cap_drop"])
    assert worker["tmpfs"][0].startswith("/srv/app/var/tmp:uid=10001,")


def test_compose_names_only_what_is_there() -> None:
    (compose,) = documents("compose.yaml")
    assert set(compose["services"]["worker"]["depends_on"]) <= compose["services"].keys()
    named = {volume.partition(":")[0] for volume in compose["services"]["store"]["volumes"]}
    assert named == compose["volumes"].keys()
    assert ["CMD", "worker", "health"] == compose["services"]["worker"]["healthcheck"]["test"]


def stages() -> list[list[tuple[str, str]]]:
    """The instructions of the Dockerfile, by stage; what stands before the first is left out."""
    text = re.sub(r"\\\n\s*", "", (DEPLOY / "Dockerfile").read_text())
    found: list[list[tuple[str, str]]] = []
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        word, _, rest = line.partition(" ")
        assert word in {"ARG", "FROM", "RUN", "ENV", "COPY", "USER", "WORKDIR", "STOPSIGNAL", "HEALTHCHECK",
                        "ENTRYPOINT", "CMD"}  # fmt: skip
        if word == "FROM":
            found.append([])
        if found:
            found[-1].append((word, rest))
    return found


def test_the_image_builds_in_one_stage_and_runs_in_another_that_is_slim() -> None:
    build, run = stages()
    assert build[0][1].endswith("-slim AS build")
    assert run[0][1].endswith("-slim")
    assert any("worker --root /srv/app build" in rest for word, rest in build if word == "RUN")
    assert not any("pip" in rest for word, rest in run if word == "RUN")
    last = dict(run)
    assert ("10001:10001", "SIGTERM") == (last["USER"], last["STOPSIGNAL"])
    assert ('["worker"]', '["start"]') == (last["ENTRYPOINT"], last["CMD"])
    assert last["HEALTHCHECK"].endswith('CMD ["worker", "health"]')
    assert [word for word, _ in run].index("USER") > [word for word, _ in run].index("RUN")
