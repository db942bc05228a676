"""A Kubernetes cluster on loopback, for scenarios: what is real, what is not, and how a scenario is written.

Real: etcd, kube-apiserver with RBAC and the aggregation layer, kube-controller-manager (StatefulSet, Deployment, HPA, PDB, node lifecycle, ...),
kubectl, Envoy, and whatever is ours. Their windows are short: an HPA looks every 3 s and shrinks after 5 s, a silent node is lost after 6 s.

Stand-ins: nodes (`kubelet.py`, pods are processes with loopback addresses of their own, real mounts, probes, hooks, grace and restarts), the
scheduler (`scheduler.py`), metrics.k8s.io and custom.metrics.k8s.io (`metrics.py`: a test says the figures), images (`images.py`: names of commands),
DNS and kube-proxy (`names.py`: a file over /etc/hosts, and for a Service with an address `cluster.service(NAME)`). Not there: cgroups, so that
`resources` are ignored; networks between pods, so that what meets on a pod's own loopback has other ports; users; pulling images; ConfigMaps that
change under a running pod.

A scenario is a plain function with the fixture `cluster` (`cluster.py`), a namespace of its own:

    def test_a_model_is_moved(cluster: Cluster) -> None:
        cluster.controller()                                          # `wakeful cluster controller` with its real Role
        gateway = cluster.gateway()                                   # Envoy and its helper; addresses in gateway.http, gateway.grpc
        cluster.apply(server("triton", replicas=2), model("m", models.quick(cluster.directory, "m")))      # manifests.py
        cluster.until(lambda: cluster.model("m").ready, 20)           # a condition with a deadline; a failure shows what there is
        with cluster.load(gateway.http, ["m"], 200) as load:          # an open loop, each answer checked
            cluster.delete("Pod", "triton-0", "v1")
            cluster.until(lambda: cluster.pod("triton-0").leaving)
        load.nothing_lost()                                           # or load.lost, load.outcomes, load.worst

Faults: `cluster.pod(NAME).kill()`, `.frozen()`; `cluster.node("b")` adds a node, `.lose()` and `.come_back()`; processes have `kill`, `freeze`,
`thaw`, `stop`, `start`; `cluster.plane.restart_apiserver(seconds_away)`, `cluster.plane.apiserver.freeze()`. Figures for HPAs: `cluster.usage(...)`,
`cluster.custom_metric(...)`. By hand: `cluster.kubectl(...)`. What must not happen: `cluster.always(...)`.

Every scenario ends within two minutes and leaves no process behind: all die with pytest, however it ends. Logs of those that failed are printed and
kept in `test-cluster-logs/`. Several runs on one machine do not meet: each control plane holds a network 127.x.0.0/16.
"""
