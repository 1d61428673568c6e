"""The manifests in deploy/kubernetes are valid, fit together, and give no pod a right that it does not need."""

import subprocess
import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml

from dpspca.common.storage.settings import kind_of, read_settings
from dpspca.common.storage.toml_file import read_toml

kubernetes_validate = pytest.importorskip("kubernetes_validate")

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"
ROLES = ("coordinator", "provider")
VERSIONS = ("1.29", "1.33")


def kustomization(role: str) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((FOLDER / role / "kustomization.yaml").read_text(encoding="utf-8"))
    return read


def resources(role: str) -> dict[str, dict[str, Any]]:
    """Return the resources of a folder, by kind."""
    read = [
        yaml.safe_load((FOLDER / role / name).read_text(encoding="utf-8")) for name in kustomization(role)["resources"]
    ]
    return {each["kind"]: each for each in read}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("role", ROLES)
def test_every_resource_is_valid(role: str, version: str) -> None:
    for each in resources(role).values():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the validator's own dependencies
            kubernetes_validate.validate(each, version, strict=True)


@pytest.mark.parametrize("role", ROLES)
def test_a_mistake_in_a_resource_would_be_found(role: str) -> None:
    wrong = resources(role)["StatefulSet"]
    wrong["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[0], strict=True)


@pytest.mark.parametrize("role", ROLES)
def test_a_folder_lists_all_of_its_files(role: str) -> None:
    named = kustomization(role)
    listed = {*named["resources"], "kustomization.yaml", *named["configMapGenerator"][0]["files"]}
    own = {"revoked.pem", "policy.toml"}  # which the party writes
    assert {path.name for path in (FOLDER / role).iterdir()} == listed - own


@pytest.mark.parametrize("role", ROLES)
def test_pods_have_no_rights(role: str) -> None:
    spec = resources(role)["StatefulSet"]["spec"]["template"]["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for each in (*spec["initContainers"], *spec["containers"]):
        assert each["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert "memory" in each["resources"]["limits"]


@pytest.mark.parametrize("role", ROLES)
def test_names_fit_together(role: str) -> None:
    found = resources(role)
    stateful = found["StatefulSet"]["spec"]
    pod = stateful["template"]["spec"]
    labels = stateful["template"]["metadata"]["labels"]
    assert stateful["selector"]["matchLabels"] == labels
    policy = found["NetworkPolicy"]["spec"]
    assert policy["podSelector"]["matchLabels"] == labels
    assert sorted(policy["policyTypes"]) == ["Egress", "Ingress"]
    assert (policy["ingress"] == []) == (role == "provider")
    assert (policy["egress"] == []) == (role == "coordinator")
    volumes = {each["name"]: each for each in pod["volumes"]}
    claims = {each["metadata"]["name"] for each in stateful["volumeClaimTemplates"]}
    mounted = {each["name"] for box in (*pod["initContainers"], *pod["containers"]) for each in box["volumeMounts"]}
    assert mounted == volumes.keys() | claims
    assert volumes["config"]["configMap"]["name"] == kustomization(role)["configMapGenerator"][0]["name"]
    images = {box["image"] for box in (*pod["initContainers"], *pod["containers"])}
    assert images == {each["name"] for each in kustomization(role)["images"]}


@pytest.mark.parametrize("role", ROLES)
def test_settings_are_read_and_what_they_name_is_mounted(role: str) -> None:
    path = FOLDER / role / "settings.toml"
    settings = read_settings(kind_of(read_toml(path)), path)
    pod = resources(role)["StatefulSet"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["args"][:4] == [role, "start", "--config", "/config/settings.toml"]
    mounts = {each["mountPath"]: each for each in container["volumeMounts"]}
    named = {key: value for key, value in vars_of(settings).items() if isinstance(value, Path)}
    for place in named.values():
        assert any(place.is_relative_to(mount) for mount in mounts), place
    for key in ("ledger", "ledger_head", "journal"):
        if key in named:
            (mount,) = [mount for mount in mounts if named[key].is_relative_to(mount)]
            assert not mounts[mount].get("readOnly")
    if role == "provider":
        heads = {
            next(mount for mount in mounts if named[key].is_relative_to(mount)) for key in ("ledger", "ledger_head")
        }
        assert len(heads) == 2


def vars_of(settings: Any) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in settings.__dataclass_fields__}


def test_the_coordinator_s_mailbox_can_be_reached_and_kept() -> None:
    """Parties renew through it. What it keeps is on the volume of the journal, since settings are read-only."""
    found, path = resources("coordinator"), FOLDER / "coordinator" / "settings.toml"
    settings = read_settings(kind_of(read_toml(path)), path)
    assert settings.mailbox
    assert settings.mailbox_folder
    assert settings.revocations == settings.mailbox_folder / "revoked.pem"
    pod = found["StatefulSet"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert {"name": "mailbox", "containerPort": settings.mailbox.port} in container["ports"]
    assert "mailbox" in {each["targetPort"] for each in found["Service"]["spec"]["ports"]}
    assert "mailbox" in {each["port"] for each in found["NetworkPolicy"]["spec"]["ingress"][0]["ports"]}


def test_a_restarted_coordinator_keeps_its_newest_revocation_list(tmp_path: Path) -> None:
    """The files of a pod are new at each start, though their content may be old."""
    (copying,) = [
        each["command"][2]
        for each in resources("coordinator")["StatefulSet"]["spec"]["template"]["spec"]["initContainers"]
        if each["name"] == "mailbox"
    ]
    config, state = tmp_path / "config", tmp_path / "state"
    for folder in (config, state):
        folder.mkdir()
    for _ in range(2):
        (config / "revoked.pem").write_text("of the first start")
        here = copying.replace("/config", str(config)).replace("/state", str(state))
        subprocess.run(["/bin/sh", "-c", here], check=True)  # noqa: S603  # the manifest's own words
        kept = state / "mailbox" / "revoked.pem"
        kept.write_text(kept.read_text() + " and newer")
    assert kept.read_text() == "of the first start and newer and newer"
