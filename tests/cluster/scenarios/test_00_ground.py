"""The ground itself: that a pod here finds, is told and suffers what it would on a real node."""

import json
import textwrap
import urllib.request
from typing import Any

from tests.cluster.ground.cluster import Cluster

WORKLOAD = """
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {greeting: hello}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {clusterIP: None, selector: {app: web}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: web}
spec:
  serviceName: web
  replicas: 1
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web, wakeful.dev/server: web}}
    spec:
      terminationGracePeriodSeconds: 10
      containers:
      - name: wakeful
        image: python
        command: [python, /etc/ground-web/web.py]
        args: [--name, $(POD_NAME)]
        env:
        - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        - {name: POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
        - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
        - {name: GREETING, valueFrom: {configMapKeyRef: {name: settings, key: greeting}}}
        ports: [{name: http, containerPort: 8080}]
        resources: {requests: {cpu: 100m}}
        readinessProbe: {httpGet: {path: /ready, port: http}, periodSeconds: 1, failureThreshold: 1}
        livenessProbe: {exec: {command: [sh, -c, test ! -e /var/lib/ground-web/dead]}, periodSeconds: 1, failureThreshold: 1}
        lifecycle: {preStop: {exec: {command: [sh, -c, echo stopping $POD_NAME >> /var/lib/ground-web/told]}}}
        volumeMounts:
        - {name: code, mountPath: /etc/ground-web}
        - {name: state, mountPath: /var/lib/ground-web}
        - {name: token, mountPath: /var/run/secrets/wakeful}
      volumes:
      - {name: code, configMap: {name: code}}
      - {name: state, persistentVolumeClaim: {claimName: shared}}
      - {name: token, projected: {sources: [{serviceAccountToken: {audience: wakeful, path: token}}]}}
"""
CODE = """
    import http.server, json, os, sys
    from pathlib import Path

    state = Path("/var/lib/ground-web")

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            told = {
                "argv": sys.argv[1:], "env": {key: os.environ[key] for key in ("POD_NAME", "POD_UID", "POD_IP", "GREETING")},
                "token": Path("/var/run/secrets/wakeful/token").read_text(), "state": sorted(path.name for path in state.iterdir()),
            }
            data = json.dumps(told).encode()
            self.send_response(503 if (state / "unready").exists() else 200)
            self.end_headers()
            self.wfile.write(data)

    http.server.ThreadingHTTPServer((os.environ["POD_IP"], 8080), Handler).serve_forever()
"""


def _deploy(cluster: Cluster) -> None:
    code = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "code"}, "data": {"web.py": textwrap.dedent(CODE)}}
    cluster.apply(code, WORKLOAD)
    cluster.until(lambda: cluster.pod("web-0").ready, what="the pod is ready")


def _said(cluster: Cluster, pod: str) -> Any:
    with urllib.request.urlopen(f"http://{cluster.pod(pod).ip}:8080/", timeout=5) as answer:
        return json.load(answer)


def test_a_pod_finds_its_volumes_and_variables(cluster: Cluster) -> None:
    _deploy(cluster)
    told, pod = _said(cluster, "web-0"), cluster.pod("web-0")
    assert told["argv"] == ["--name", "web-0"]
    assert told["env"] == {"POD_NAME": "web-0", "POD_UID": pod.uid, "POD_IP": pod.ip, "GREETING": "hello"}
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": told["token"], "audiences": ["wakeful"]}}
    reviewed = cluster.api.call("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)["status"]
    assert reviewed["authenticated"]
    assert reviewed["user"]["extra"]["authentication.kubernetes.io/pod-uid"] == [pod.uid]


def test_probes_restarts_and_the_end_of_a_pod(cluster: Cluster) -> None:
    _deploy(cluster)
    state, pod = cluster.directory / "claims/shared", cluster.pod("web-0")
    (state / "unready").touch()
    cluster.until(lambda: not pod.ready, what="the failing readiness probe is seen")
    (state / "unready").unlink()
    cluster.until(lambda: pod.ready, what="it is ready again")
    uid, process = pod.uid, pod.pid()
    pod.kill()
    cluster.until(lambda: pod.restarts == 1 and pod.ready, what="the container is started again")
    assert pod.uid == uid
    assert pod.pid() != process
    (state / "dead").touch()
    cluster.until(lambda: pod.restarts >= 2, what="the liveness probe has ended the container")
    (state / "dead").unlink()
    cluster.until(lambda: pod.ready, what="it is ready again")
    (state / "told").unlink()  # by the end that the liveness probe brought
    cluster.delete("Pod", "web-0", "v1")
    cluster.until(lambda: pod.uid not in ("", uid) and pod.ready, what="the StatefulSet has made another pod of this name")
    assert (state / "told").read_text() == "stopping web-0\n"


def test_an_hpa_on_cpu_and_a_drained_node(cluster: Cluster) -> None:
    _deploy(cluster)
    cluster.usage("web", cpu="200m")
    cluster.kubectl("autoscale", "statefulset", "web", "--cpu-percent=50", "--min=1", "--max=3")
    cluster.until(lambda: cluster.statefulset("web").status.get("readyReplicas") == 3, what="the HPA has grown it")
    cluster.node("b")
    cluster.until(lambda: "-b " in cluster.kubectl("get", "nodes") + " ", what="the second node is there")
    cluster.kubectl("drain", cluster.nodes["a"].name, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=30s")
    name = cluster.nodes["b"].name
    cluster.until(lambda: [pod.object and pod.object["spec"].get("nodeName") for pod in cluster.pods("web")] == [name] * 3, what="all are on node b")
    cluster.usage("web", cpu="1m")
    cluster.until(lambda: len(cluster.pods("web")) == 1, 40, what="the HPA has shrunk it")


def test_a_lost_node_and_its_return(cluster: Cluster) -> None:
    _deploy(cluster)
    pod, process = cluster.pod("web-0"), cluster.pod("web-0").pid()
    cluster.nodes["a"].lose()
    assert not pod.alive
    cluster.until(lambda: not pod.ready, what="the node is seen to be gone")
    cluster.nodes["a"].come_back()
    cluster.until(lambda: pod.ready and pod.pid() != process, what="the pod runs again")


def test_an_api_server_that_goes_and_comes(cluster: Cluster) -> None:
    _deploy(cluster)
    cluster.plane.restart_apiserver(1.0)
    assert _said(cluster, "web-0")
    cluster.pod("web-0").kill()
    cluster.until(lambda: cluster.pod("web-0").restarts == 1 and cluster.pod("web-0").ready, what="the node has told of the restart")
