"""etcd, kube-apiserver, kube-controller-manager and kubectl, built from source at the versions of go.mod."""
