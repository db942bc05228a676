"""Building the control plane and Helm through the Go module proxy, once: the programs lie in the user's cache afterwards. `python -m` this for it.

The modules are pinned by go.mod and go.sum, so the build is the same everywhere (`-mod=readonly`). It takes minutes and 4 GB of Go's own caches.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

SOURCES = Path(__file__).parent
PACKAGES = ("go.etcd.io/etcd/server/v3", "k8s.io/kubernetes/cmd/kube-apiserver", "k8s.io/kubernetes/cmd/kube-controller-manager",
            "k8s.io/kubernetes/cmd/kubectl", "helm.sh/helm/v4/cmd/helm")
VERSION = "v1.36.3"
"""What the programs say they are; the source does not know, because a release's build tells it by these flags too."""
_STAMP = "k8s.io/component-base/version."
FLAGS = ("-mod=readonly", "-buildvcs=false", "-trimpath", "-ldflags",
         f"-s -w -X {_STAMP}gitVersion={VERSION} -X {_STAMP}gitMajor=1 -X {_STAMP}gitMinor=36")
MINUTES = 30
"""After which a build is given up."""
PROGRESS_SECONDS = 30.0


class Missing(Exception):
    """There is no control plane, and it cannot be built; says why in one line."""


def key() -> str:
    """Of a build in the cache: whatever goes into it."""
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum"):
        digest.update((SOURCES / name).read_bytes())
    digest.update("\0".join((*PACKAGES, *FLAGS)).encode())
    return digest.hexdigest()[:16]


def cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "wakeful-control-plane"


def missing() -> str | None:
    """Why there can be no control plane here; None: it is built, or can be."""
    built = cache() / key()
    return None if built.is_dir() or shutil.which("go") else f"Go is not installed, and no built control plane lies in {built}"


def binaries() -> Path:
    """The directory with the programs (etcd's is named `server`), built if they are not there yet. Raises Missing."""
    built = cache() / key()
    if built.is_dir():
        return built
    if why := missing():
        raise Missing(why)
    cache().mkdir(parents=True, exist_ok=True)
    with open(cache() / "lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # whoever waited here finds it built
        if not built.is_dir():
            _build(built)
    return built


def _build(built: Path) -> None:
    with tempfile.TemporaryDirectory(dir=cache()) as scratch:
        target = Path(scratch) / "bin"
        target.mkdir()
        log = Path(scratch) / "log"
        began = time.monotonic()
        done = threading.Event()
        threading.Thread(target=_tell_progress, args=(target, began, done), daemon=True).start()
        try:
            with log.open("wb") as out:
                status = subprocess.run(
                    ["go", "build", *FLAGS, "-o", f"{target}/", *PACKAGES], cwd=SOURCES, stdout=out, stderr=out,
                    timeout=MINUTES * 60, check=False, env=os.environ | {"CGO_ENABLED": "0", "GOFLAGS": ""},
                ).returncode
        except subprocess.TimeoutExpired:
            raise Missing(f"the control plane was not built within {MINUTES} minutes") from None
        finally:
            done.set()
        if status:
            lines = [line for line in log.read_text("utf-8", "replace").splitlines() if not line.startswith("go: downloading")]
            raise Missing(f"the control plane cannot be built: {' / '.join(lines[-3:])}")
        target.rename(built)
        _tell(f"built in {time.monotonic() - began:.0f} s into {built}")


def _tell_progress(target: Path, began: float, done: threading.Event) -> None:
    _tell("building etcd, kube-apiserver, kube-controller-manager, kubectl and Helm from source: minutes, once")
    while not done.wait(PROGRESS_SECONDS):
        _tell(f"still building after {time.monotonic() - began:.0f} s, {len(os.listdir(target))} of {len(PACKAGES)} programs there")


def _tell(line: str) -> None:
    """Past pytest's capture: whoever waits for minutes should see why."""
    print(f"control plane: {line}", file=sys.__stderr__, flush=True)


if __name__ == "__main__":
    try:
        print(binaries())
    except Missing as why_not:
        sys.exit(str(why_not))
