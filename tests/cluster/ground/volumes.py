"""What a container finds: its volumes as files, its variables, and a command that mounts the ones and runs in the others.

A volume is a directory of the node, bound to its place in a mount namespace of the container's own. Where a place is not there, its nearest parent
becomes an overlay, so that nothing is made on the machine itself. What is to be at /tmp is told by TMPDIR instead: the models of tests, and often
the programs, lie below the machine's own. ConfigMaps and Secrets are read when a pod starts, and not again.
"""

import base64
import os
import re
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Any

from tests.cluster.ground.api import Api, Object
from wakeful.cluster.quantities import whole

REFERENCE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")
KEPT = ("PATH", "PYTHONPATH", "HOME", "LANG", "VIRTUAL_ENV")
"""Variables that containers take from here: how Python and the programs are found."""
TOKEN_SECONDS = 3600
TMP = "/tmp"
NODE_IP = "127.0.0.1"


class NotYet(Exception):
    """What the pod names is not there; the kubelet tries again."""


class Files:
    """The volumes of one pod, made below a directory of its own; claims are shared by the pods of the namespace."""

    def __init__(self, api: Api, pod: Object, directory: Path, claims: Path, ip: str) -> None:
        self._api, self._pod, self._directory, self._claims, self._ip = api, pod, directory, claims, ip

    def make(self) -> dict[str, Path]:
        """Directory of each volume by its name. Raises NotYet."""
        return {volume["name"]: self._volume(volume) for volume in self._pod["spec"].get("volumes") or ()}

    def _volume(self, volume: Object) -> Path:
        place: Path
        if "persistentVolumeClaim" in volume:
            place = self._claims / volume["persistentVolumeClaim"]["claimName"]
        elif "hostPath" in volume:
            place = Path(volume["hostPath"]["path"])
        else:
            place = self._directory / "volumes" / volume["name"]
        place.mkdir(parents=True, exist_ok=True)
        for kind in ("configMap", "secret", "downwardAPI"):
            if kind in volume:
                _write(place, self._content(kind, volume[kind]))
        for source in (volume.get("projected") or {}).get("sources") or ():
            for kind, wanted in source.items():
                _write(place, self._content(kind, wanted))
        return place

    def _content(self, kind: str, wanted: Object) -> dict[str, bytes]:
        if kind == "serviceAccountToken":
            return {wanted["path"]: self._token(wanted).encode()}
        if kind == "downwardAPI":
            items = wanted.get("items") or ()
            return {item["path"]: field_of(self._pod, item["fieldRef"]["fieldPath"], self._ip).encode() for item in items}
        if kind not in ("configMap", "secret"):
            raise NotYet(f"volumes of kind {kind} are not known here")
        content = self.keyed(kind, wanted.get("name") or wanted.get("secretName") or "", optional=bool(wanted.get("optional")))
        if "items" in wanted:
            return {item["path"]: content[item["key"]] for item in wanted["items"]}
        return content

    def _token(self, wanted: Object) -> str:
        metadata, spec = self._pod["metadata"], self._pod["spec"]
        account = self._api.path("v1", "ServiceAccount", metadata["namespace"], spec.get("serviceAccountName", "default"), "token")
        asked = {
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {
                "audiences": [wanted["audience"]] if wanted.get("audience") else [],
                "expirationSeconds": wanted.get("expirationSeconds", TOKEN_SECONDS),
                "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]},
            },
        }
        token: str = self._api.call("POST", account, asked)["status"]["token"]
        return token

    def keyed(self, kind: str, name: str, *, optional: bool = False) -> dict[str, bytes]:
        """Content of a ConfigMap or Secret. Raises NotYet."""
        found = self._api.get(self._api.path("v1", {"configMap": "ConfigMap", "secret": "Secret"}[kind], self._pod["metadata"]["namespace"], name))
        if found is None:
            if optional:
                return {}
            raise NotYet(f"{kind} {name} is not there")
        binary = found.get("binaryData") or {} if kind == "configMap" else found.get("data") or {}
        plain = found.get("data") or {} if kind == "configMap" else {}
        return {**{key: text.encode() for key, text in plain.items()}, **{key: base64.b64decode(text) for key, text in binary.items()}}

    def variables(self, container: Object) -> dict[str, str]:
        """As Kubernetes makes them: later ones may name earlier ones by $(NAME). Raises NotYet."""
        env: dict[str, str] = {}
        for source in container.get("envFrom") or ():
            for kind, wanted in ((kind, source[f"{kind}Ref"]) for kind in ("configMap", "secret") if f"{kind}Ref" in source):
                content = self.keyed(kind, wanted["name"], optional=bool(wanted.get("optional")))
                env |= {source.get("prefix", "") + key: text.decode() for key, text in content.items()}
        for variable in container.get("env") or ():
            env[variable["name"]] = self._value(variable, container, env)
        return env

    def _value(self, variable: Object, container: Object, env: Mapping[str, str]) -> str:
        source = variable.get("valueFrom")
        if source is None:
            return expanded(variable.get("value", ""), env)
        if "fieldRef" in source:
            return field_of(self._pod, source["fieldRef"]["fieldPath"], self._ip)
        if "resourceFieldRef" in source:
            of, _, name = source["resourceFieldRef"]["resource"].partition(".")
            quantity = ((container.get("resources") or {}).get(of) or {}).get(name, "0")
            return str(-(-whole(quantity) // max(whole(source["resourceFieldRef"].get("divisor", "1")), 1)))
        [(kind, wanted)] = source.items()
        content = self.keyed(kind.removesuffix("KeyRef"), wanted["name"], optional=bool(wanted.get("optional")))
        return content.get(wanted["key"], b"").decode()


def field_of(pod: Object, path: str, ip: str) -> str:
    """The downward API: `metadata.name`, `metadata.labels['x']`, `status.podIP`, ..."""
    own = {"status.podIP": ip, "status.podIPs": ip, "status.hostIP": NODE_IP, "status.hostIPs": NODE_IP}
    if path in own:
        return own[path]
    place, _, key = path.partition("['")
    found: Any = pod
    for part in place.split("."):
        found = (found or {}).get(part)
    return str((found or {}).get(key.removesuffix("']"), "")) if key else str(found or "")


def expanded(text: str, env: Mapping[str, str]) -> str:
    """$(NAME) is replaced where NAME is known, and stays where it is not."""
    return REFERENCE.sub(lambda match: env.get(match[1], match[0]), text)


def inherited() -> dict[str, str]:
    return {name: os.environ[name] for name in KEPT if name in os.environ}


def mounting(mounts: list[tuple[Path, str]], scratch: Path) -> list[str]:
    """The beginning of a command that has these (directory or file, place in the container) mounted, and nobody else sees it."""
    scratch.mkdir(parents=True, exist_ok=True)
    mounts = sorted(mounts, key=lambda mount: mount[1])
    lines = ["set -e", f"mount -t tmpfs none {quote(str(scratch))}"]
    for number, parent in enumerate(_covered([place for _, place in mounts])):
        at, upper, work = (quote(str(path)) for path in (parent, scratch / f"upper{number}", scratch / f"work{number}"))
        lines.append(f"mkdir {upper} {work}; mount -t overlay overlay -o lowerdir={at},upperdir={upper},workdir={work} {at}")
    for source, place in mounts:
        at = quote(place)
        lines.append(f"mkdir -p {at}" if source.is_dir() else f"[ -e {at} ] || {{ mkdir -p $(dirname {at}); : > {at}; }}")
        lines.append(f"mount --bind {quote(str(source))} {at}")
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", "\n".join([*lines, 'exec "$@"']), "sh"]


def _covered(places: list[str]) -> list[Path]:
    """The directories of this machine in which a place has to be made, outer ones first."""
    missing = [Path(place) for place in places if not Path(place).exists()]
    own = [path for path in missing if not any(Path(other) in path.parents for other in places)]
    return sorted({next(parent for parent in path.parents if parent.is_dir()).resolve() for path in own})


def _write(place: Path, content: Mapping[str, bytes]) -> None:
    for name, data in content.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
