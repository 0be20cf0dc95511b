"""The files that deploy the service name what there is; its guides run in `test_guides.py`."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def test_deployment_files_name_real_settings_and_commands() -> None:
    from deniable.service.ids import ENVIRONMENT
    from deniable.service.settings import CONFIG, Settings, variable

    known = {variable(name) for name in Settings.model_fields} | {CONFIG, ENVIRONMENT}
    deploy = ROOT / "deploy"
    for path in (
        ROOT / "Dockerfile",
        ROOT / "compose.yaml",
        deploy / "deniable.service",
        deploy / "kubernetes.yaml",
    ):
        named = set(re.findall(r"DENIABLE_[A-Z_]+", path.read_text("utf-8")))
        assert named
        assert named <= known, path.name
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert "postgres" in extras["optional-dependencies"]


def test_the_configuration_in_deploy_is_read_and_named_by_the_unit() -> None:
    from deniable.service.settings import CONFIG, load

    text = (ROOT / "deploy" / "deniable.toml").read_text("utf-8")
    unit = (ROOT / "deploy" / "deniable.service").read_text("utf-8")
    guide = (DOCS / "operate.md").read_text("utf-8")
    settings = load({"config": str(ROOT / "deploy" / "deniable.toml")}, {})
    assert settings.store.startswith("sqlite:////var/lib/deniable/")
    assert "StateDirectory=deniable" in unit
    installed = "/etc/deniable/deniable.toml"
    assert f"Environment={CONFIG}={installed}" in unit
    assert f"{CONFIG}={installed}" in text
    assert f"deploy/deniable.toml {installed}" in guide
    assert f"{CONFIG}={installed} /opt/deniable/bin/deniable" in guide
    assert "ExecStart=/opt/deniable/bin/deniable serve" in unit


def test_nginx_sends_decisions_and_pages_to_the_right_process() -> None:
    """Every route of the API is sent to a process that answers it."""
    from deniable.service.http import ofrep
    from deniable.service.http.api import HEALTH_PATHS

    text = (ROOT / "deploy" / "nginx.conf").read_text("utf-8")
    deciding, health = (re.compile(rule) for rule in re.findall(r"location ~ (\S+) \{", text))
    for path in (
        "/v1/experiments/checkout/decisions",
        "/v1/experiments/checkout/decisions/batch",
        "/v1/rewards",
        "/v1/rewards/batch",
        ofrep.BULK_PATH,
        f"{ofrep.BULK_PATH}/checkout",
    ):
        assert deciding.match(path), path
    for path in ("/", "/v1/experiments", "/v1/experiments/checkout/counts", "/v1/firm", "/leak"):
        assert not deciding.match(path), path
    assert all(health.match(path) for path in HEALTH_PATHS)
    assert 'proxy_set_header Connection "";' in text
    assert text.count("keepalive ") == 2
    assert "proxy_set_header X-Forwarded-Proto $scheme;" in text


# -- alerts, dashboard and runbook -----------------------------------------------------------


def _metrics_in(text: str) -> set[str]:
    return set(re.findall(r"deniable_\w+", text))


def test_alerts_and_dashboard_use_metrics_that_exist() -> None:
    from prometheus_client.parser import text_string_to_metric_families

    from deniable.service.http.metrics import Tally
    from deniable.service.service import StoreFigures

    tally = Tally()
    tally.measure(StoreFigures(10**9, 5.0))
    families = text_string_to_metric_families(tally.exposition().decode())
    known = {sample.name for family in families for sample in family.samples}
    rules = yaml.safe_load((ROOT / "deploy" / "alerts.yml").read_text("utf-8"))["groups"][0][
        "rules"
    ]
    dashboard = json.loads((ROOT / "deploy" / "grafana.json").read_text("utf-8"))
    shown = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    for expression in (*(rule["expr"] for rule in rules), *shown):
        assert _metrics_in(expression) <= known, expression
        assert expression.count("(") == expression.count(")")
    drawn = _metrics_in(" ".join(shown))
    assert {name for name in known if name.endswith("_total")} <= drawn, "all counters are drawn"


def test_every_alert_leads_to_the_runbook() -> None:
    rules = yaml.safe_load((ROOT / "deploy" / "alerts.yml").read_text("utf-8"))["groups"][0][
        "rules"
    ]
    runbook = (DOCS / "runbook.md").read_text("utf-8")
    symptoms = re.findall(r"^## (.+)$", runbook, re.M)
    assert len(symptoms) == 10
    anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in symptoms}
    for rule in rules:
        file, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert (file, anchor in anchors) == ("docs/runbook.md", True), rule["alert"]


# -- Kubernetes ------------------------------------------------------------------------------

Document = dict[str, Any]
VERSIONS = {
    "Deployment": "apps/v1",
    "NetworkPolicy": "networking.k8s.io/v1",
    "PodDisruptionBudget": "policy/v1",
    "Service": "v1",
}


def manifests() -> dict[str, Document]:
    text = (ROOT / "deploy" / "kubernetes.yaml").read_text("utf-8")
    found = list(yaml.safe_load_all(text))
    assert len({one["kind"] for one in found}) == len(found)
    return {one["kind"]: one for one in found}


def wrong(found: dict[str, Document]) -> list[str]:
    """What a cluster would refuse, or what would not fit the service."""
    from deniable.service.ids import ENVIRONMENT
    from deniable.service.settings import Settings, load, variable

    told = [kind for kind, version in VERSIONS.items() if found[kind].get("apiVersion") != version]
    deployment = found["Deployment"]["spec"]
    pod = deployment["template"]["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    policy = found["NetworkPolicy"]["spec"]
    selectors = (
        deployment["selector"]["matchLabels"],
        found["Service"]["spec"]["selector"],
        found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        policy["podSelector"]["matchLabels"],
    )
    if not all(chosen and chosen.items() <= labels.items() for chosen in selectors):
        told.append("a selector does not find the pods")
    (container,) = pod["containers"]
    plain = {one["name"]: one["value"] for one in container["env"] if "value" in one}
    secret = {one["name"] for one in container["env"] if "valueFrom" in one}
    known = {variable(name) for name in Settings.model_fields} | {ENVIRONMENT}
    told += sorted((set(plain) | secret) - known)
    if secret != {variable("store"), ENVIRONMENT}:
        told.append("store and key come from a secret")
    settings = load({}, plain)
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    named = {found["Service"]["spec"]["ports"][0]["targetPort"]}
    probes = [container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")]
    named |= {probe["port"] for probe in probes} | {policy["ingress"][0]["ports"][0]["port"]}
    if named != set(ports) or set(ports.values()) != {settings.port}:
        told.append("ports differ")
    if [probe["path"] for probe in probes] != ["/healthz", "/healthz", "/readyz"]:
        told.append("probes ask for other paths")
    waited = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    if pod["terminationGracePeriodSeconds"] < settings.shutdown_seconds + waited:
        told.append("killed before it has ended")
    mounted = {one["name"] for one in container["volumeMounts"]}
    if mounted != {one["name"] for one in pod["volumes"]}:
        told.append("volumes differ")
    guarded = container["securityContext"]
    if not (pod["securityContext"]["runAsNonRoot"] and guarded["readOnlyRootFilesystem"]):
        told.append("more rights than it needs")
    return told


def test_the_manifests_fit_together_and_the_service() -> None:
    assert wrong(manifests()) == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (container,) = manifests()["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"deniable:{project['version']}"


POD = ("Deployment", "spec", "template", "spec")
CONTAINER = (*POD, "containers", 0)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("Service", "spec", "selector", "app.kubernetes.io/name"), "other"),
        (("Deployment", "apiVersion"), "apps/v1beta1"),
        ((*POD, "terminationGracePeriodSeconds"), 30),
        ((*CONTAINER, "env", 1, "value"), "9000"),
        ((*CONTAINER, "env", 0, "name"), "DENIABLE_HOTS"),
        ((*CONTAINER, "env", 3, "valueFrom"), None),
        ((*CONTAINER, "readinessProbe", "httpGet", "path"), "/ready"),
        (("Service", "spec", "ports", 0, "targetPort"), "web"),
        ((*POD, "volumes", 0, "name"), "data"),
    ],
    ids=lambda value: str(value[-1]) if isinstance(value, tuple) else "",
)
def test_a_mistake_in_the_manifests_is_found(path: tuple[Any, ...], value: Any) -> None:
    found: Any = manifests()
    place = found
    for step in path[:-1]:
        place = place[step]
    if value is None:
        del place[path[-1]]
        place["value"] = "postgresql://deniable:password@database/deniable"
    else:
        place[path[-1]] = value
    assert wrong(found) != []
