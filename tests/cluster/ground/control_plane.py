"""A whole control plane on loopback: etcd in memory, kube-apiserver with the aggregation layer, kube-controller-manager with fast settings."""

import json
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import trustme
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.cluster.control_plane.build import binaries
from tests.cluster.ground.api import OFFLINE, Api, ApiError, Object, condition_of
from tests.cluster.ground.metrics import Metrics
from tests.cluster.ground.processes import Process
from tests.daemon import wait_until

TOKEN = "the-tests-own-token"
NETWORKS = range(20, 250)
"""Second number of 127.x.0.0/16: each control plane has such a network, with whatever runs there."""
RESERVED = 4999
"""Port that is held in a network as long as it is in use."""
AUDITED = {
    "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts"]}, {"level": "None"}],
}
"""What accounts of pods, our controller's among them, ask of the API server; the rest is the tests' and Kubernetes' own."""
CONTROLLERS = (
    "deployment", "disruption", "garbage-collector", "horizontal-pod-autoscaler", "namespace", "node-lifecycle", "persistentvolume-binder",
    "pod-garbage-collector", "replicaset", "serviceaccount", "statefulset", "taint-eviction",
)
START_SECONDS = 60.0


class Network:
    """Addresses 127.x.*.* that nobody else on this machine uses, as long as it is open."""

    def __init__(self) -> None:
        for second in NETWORKS:
            held = socket.socket()
            with suppress(OSError):
                held.bind((f"127.{second}.0.254", RESERVED))
                held.listen(1)
                self.prefix, self._held = f"127.{second}", held
                return
            held.close()
        raise AssertionError("all networks of 127.0.0.0/8 are in use by other tests")

    def close(self) -> None:
        self._held.close()


class ControlPlane:
    """Started by its constructor. Everything that it writes lies in a directory of its own in memory."""

    def __init__(self, crds: Sequence[Object] = ()) -> None:
        """`crds` are there before the controllers look for what kinds there are, which they do twice a minute only."""
        self.programs = binaries()
        self.directory = Path(tempfile.mkdtemp(prefix="control-plane-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        self.network = Network()
        self.host = f"{self.network.prefix}.0.1"
        self.url = f"https://{self.host}:6443"
        self._issue()
        self._audit = self.directory / "audit.log"
        self.etcd, self.apiserver, self.manager = self._etcd(), self._apiserver(), self._manager()
        self.processes = (self.etcd, self.apiserver, self.manager)
        self.kubeconfig_path = self.kubeconfig(TOKEN, self.directory / "kubeconfig")
        self.api = Api(self.url, TOKEN, self.authority)
        self.metrics = Metrics(self.api)
        self.scenarios = 0
        """How many there were: each has addresses of its own."""
        try:
            self.etcd.start()
            self.apiserver.start()
            self.apiserver.wait_until(self.ready, "the API server is ready", START_SECONDS)
            self.metrics.register()
            self._make_known(crds)
            self.manager.start()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for process in reversed(self.processes):
            with suppress(AssertionError):  # never started
                process.kill()
        self.metrics.close()
        self.api.close()
        self.network.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def ready(self) -> bool:
        try:
            self.api.call("GET", "/readyz")
        except (ApiError, *OFFLINE):
            return False
        return True

    def asked_by(self, namespace: str, account: str) -> list[Object]:
        """All requests of a service account so far, as the API server's audit log has them."""
        name = f"system:serviceaccount:{namespace}:{account}"
        lines = self._audit.read_text().splitlines() if self._audit.exists() else ()
        return [event for event in map(json.loads, lines) if event["user"]["username"] == name]

    def restart_apiserver(self, seconds_away: float = 0.0) -> None:
        """Killed as by a crash, and back again with all that etcd has."""
        self.apiserver.kill()
        time.sleep(seconds_away)
        self.apiserver.start()
        self.apiserver.wait_until(self.ready, "the API server is ready again", START_SECONDS)

    @contextmanager
    def kinds(self, crds: Sequence[Object]) -> Iterator[None]:
        """More kinds, for the time of a block."""
        try:
            self._make_known(crds)
            yield
        finally:
            paths = [self.api.path_of(crd) for crd in crds]
            for path in paths:
                self.api.delete(path)
            wait_until(lambda: not any(self.api.get(path) for path in paths), "the kinds are gone")

    def _make_known(self, crds: Sequence[Object]) -> None:
        for crd in crds:
            self.api.apply(crd)
        wait_until(lambda: all(map(self._is_known, crds)), "the API server knows the kinds")

    def _is_known(self, crd: Object) -> bool:
        """Established, and found by whoever asks what there is, which is a little later."""
        spec = crd["spec"]
        try:
            self.api.path(f"{spec['group']}/{spec['versions'][0]['name']}", spec["names"]["kind"], None)
        except (KeyError, ApiError):
            return False
        return bool(condition_of(self.api.get(self.api.path_of(crd)), "Established")["status"] == "True")

    def kubeconfig(self, token: str, path: Path, namespace: str = "default") -> Path:
        """A file that kubectl and others find the API server by."""
        content = {
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": self.url, "certificate-authority": str(self.directory / "pki/ca.crt")}}],
            "users": [{"name": "test", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": namespace}}],
        }
        path.write_text(yaml.safe_dump(content))
        return path

    # ── how they are started ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _issue(self) -> None:
        pki = self.directory / "pki"
        pki.mkdir()
        serving, proxy = trustme.CA(), trustme.CA()
        serving.cert_pem.write_to_path(pki / "ca.crt")
        self.authority = serving.cert_pem.bytes().decode()
        _write(serving.issue_cert(self.host, "localhost", "kubernetes.default.svc"), pki / "api")
        proxy.cert_pem.write_to_path(pki / "proxy-ca.crt")
        _write(proxy.issue_cert(common_name="aggregator"), pki / "proxy")
        key = ec.generate_private_key(ec.SECP256R1())
        plain = serialization.NoEncryption()
        (pki / "accounts.key").write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
        public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        (pki / "accounts.pub").write_bytes(public)
        (self.directory / "tokens.csv").write_text(f'{TOKEN},test,test,"system:masters"\n')

    def _etcd(self) -> Process:
        client, peer = f"http://{self.host}:2379", f"http://{self.host}:2380"
        return self._process(
            "server", "etcd", data_dir=self.directory / "etcd", listen_client_urls=client, advertise_client_urls=client, listen_peer_urls=peer,
            initial_advertise_peer_urls=peer, initial_cluster=f"default={peer}", unsafe_no_fsync="true", log_level="warn",
        )

    def _apiserver(self) -> Process:
        pki, policy = self.directory / "pki", self.directory / "audit-policy"
        policy.write_text(json.dumps(AUDITED))
        return self._process(
            "kube-apiserver", "kube-apiserver", audit_policy_file=policy, audit_log_path=self._audit,
            etcd_servers=f"http://{self.host}:2379", secure_port="6443", bind_address=self.host,
            advertise_address="10.1.1.1", endpoint_reconciler_type="none", cert_dir=pki, tls_cert_file=pki / "api.crt",
            tls_private_key_file=pki / "api.key", service_account_key_file=pki / "accounts.pub",
            service_account_signing_key_file=pki / "accounts.key", service_account_issuer="https://kubernetes.default.svc",
            token_auth_file=self.directory / "tokens.csv", authorization_mode="RBAC", service_cluster_ip_range="10.0.0.0/16",
            requestheader_client_ca_file=pki / "proxy-ca.crt", requestheader_username_headers="X-Remote-User",
            requestheader_group_headers="X-Remote-Group", requestheader_extra_headers_prefix="X-Remote-Extra-",
            proxy_client_cert_file=pki / "proxy.crt", proxy_client_key_file=pki / "proxy.key", shutdown_delay_duration="0s",
        )

    def _manager(self) -> Process:
        pki = self.directory / "pki"
        return self._process(
            "kube-controller-manager", "kube-controller-manager", kubeconfig=self.directory / "kubeconfig", secure_port="10257",
            bind_address=self.host, cert_dir=pki / "manager", service_account_private_key_file=pki / "accounts.key", root_ca_file=pki / "ca.crt",
            leader_elect="false", controllers=",".join(f"{name}-controller" for name in CONTROLLERS) + ",root-ca-certificate-publisher-controller",
            horizontal_pod_autoscaler_sync_period="3s", horizontal_pod_autoscaler_downscale_stabilization="5s",
            horizontal_pod_autoscaler_cpu_initialization_period="1s", horizontal_pod_autoscaler_initial_readiness_delay="1s",
            node_monitor_period="1s", node_monitor_grace_period="6s", kube_api_qps="200", kube_api_burst="400",
        )

    def _process(self, program: str, name: str, **flags: object) -> Process:
        arguments = [f"--{flag.replace('_', '-')}={value}" for flag, value in flags.items()]
        return Process(name, [str(self.programs / program), *arguments], self.directory / "logs" / f"{name}.log")


def _write(issued: trustme.LeafCert, path: Path) -> None:
    issued.private_key_pem.write_to_path(path.with_suffix(".key"))
    path.with_suffix(".crt").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
