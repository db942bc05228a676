"""metrics.k8s.io and custom.metrics.k8s.io, as the HPA controller asks for them; the values are what a test says."""

import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

import trustme

from tests.cluster.ground.api import OFFLINE, Api, ApiError, Object, now

RESOURCES, CUSTOM = "metrics.k8s.io/v1beta1", "custom.metrics.k8s.io/v1beta2"
METRIC = "infer_rps"
"""The custom metric of this ground, of Models and of Servers."""
KINDS = {"models.wakeful.dev": "Model", "servers.wakeful.dev": "Server"}


class Usage(NamedTuple):
    """Of each pod, as quantities."""

    cpu: str
    memory: str


class Metrics:
    """Values by namespace; served for the whole control plane."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.usage: dict[str, dict[str, Usage]] = {}
        """By namespace and Server; a Server that is not there has no figures, as before its first scrape."""
        self.custom: dict[tuple[str, str, str], str] = {}
        """A quantity by namespace, kind and name."""
        certificate = trustme.CA().issue_cert("127.0.0.1", "localhost")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate.configure_cert(context)
        answer = self._answer

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                data = json.dumps(answer(self.path)).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *arguments: object) -> None:
                """Nobody reads that."""

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def register(self) -> None:
        """Tell the API server who answers for the two groups."""
        port = self._server.server_address[1]
        self._api.apply({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "metrics", "namespace": "kube-system"},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        })
        for served in (RESOURCES, CUSTOM):
            group, version = served.split("/")
            self._api.apply({
                "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": f"{version}.{group}"},
                "spec": {"group": group, "version": version, "insecureSkipTLSVerify": True, "groupPriorityMinimum": 100, "versionPriority": 100,
                         "service": {"namespace": "kube-system", "name": "metrics", "port": port}},
            })

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, target: str) -> Object:
        url = urlsplit(target)
        parts = url.path.strip("/").split("/")
        match parts:
            case ["apis", group, version]:
                return _resources(f"{group}/{version}")
            case ["apis", "metrics.k8s.io", _, "namespaces", namespace, "pods"]:
                return self._pods(namespace, parse_qs(url.query).get("labelSelector", [""])[0])
            case ["apis", "custom.metrics.k8s.io", _, "namespaces", namespace, kind, name, _]:
                return self._values(namespace, kind, name)
            case ["apis", group]:
                served = CUSTOM if group in CUSTOM else RESOURCES
                versions = [{"groupVersion": served, "version": served.split("/")[1]}]
                return {"kind": "APIGroup", "apiVersion": "v1", "name": group, "versions": versions}
        return {"kind": "Status", "apiVersion": "v1", "status": "Success"}

    def _pods(self, namespace: str, selector: str) -> Object:
        usage = self.usage.get(namespace, {})
        try:
            pods = self._api.list(f"/api/v1/namespaces/{namespace}/pods", labelSelector=selector)
        except (ApiError, *OFFLINE):
            pods = []
        figures = [(pod["metadata"]["name"], usage.get(pod["metadata"].get("labels", {}).get("wakeful.dev/server", ""))) for pod in pods]
        return {"kind": "PodMetricsList", "apiVersion": RESOURCES, "metadata": {}, "items": [
            {"metadata": {"name": name, "namespace": namespace}, "timestamp": now(), "window": "5s",
             "containers": [{"name": "wakeful", "usage": used._asdict()}]}
            for name, used in figures if used is not None
        ]}

    def _values(self, namespace: str, kind: str, name: str) -> Object:
        value = self.custom.get((namespace, KINDS.get(kind, kind), name))
        described = {"kind": KINDS.get(kind, kind), "namespace": namespace, "name": name, "apiVersion": "wakeful.dev/v1alpha1"}
        items = [] if value is None else [{"describedObject": described, "metric": {"name": METRIC}, "timestamp": now(), "value": value}]
        return {"kind": "MetricValueList", "apiVersion": CUSTOM, "metadata": {}, "items": items}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that left: the API server, when it was killed."""


def _resources(version: str) -> Object:
    names = {"pods": "PodMetrics"} if version == RESOURCES else {f"{kind}/{METRIC}": "MetricValueList" for kind in KINDS}
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": [
        {"name": name, "singularName": "", "namespaced": True, "kind": kind, "verbs": ["get", "list"]} for name, kind in names.items()
    ]}
