"""Fetches one model into the cache: `python -m wakeful.cluster.agent.fetch_main`, with a `fetching.Order` as one line on stdin, which stays open as
long as the daemon lives; words of `fetching` come on stdout.

It is a process of its own so that the daemon imports no cloud's library, a leak or a crash in one hurts nobody, and a model's secret is where it is
needed and nowhere else.
"""

import errno
import os
import resource
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic

import msgspec

from wakeful.cluster.agent.cache import Cache, NoRoom
from wakeful.cluster.agent.fetching import Done, Failed, Order, Progress, Word
from wakeful.cluster.agent.stores import Listing, Store, Unfetchable, check_paths, open_store
from wakeful.runtime.lifeline import tie_to_daemon

NICE = 10
"""Serving comes first."""
AT_ONCE = 4
"""Files of one model: one stream alone fills no fast network."""
TELL_EVERY = 0.5
"""Seconds between two words on progress."""
NOT_FOUND = 404
_LONGEST_REASON = 600
_SHORTEST_HIDDEN = 4
"""A secret's values of fewer characters, such as a port, are not cut out of messages."""


def main() -> None:
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=Order)
    tie_to_daemon(sys.stdin.fileno())
    words = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is no word of ours
    os.nice(NICE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if order.limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (order.limit, order.limit))

    def say(word: Word) -> None:
        words.write(msgspec.json.encode(word) + b"\n")

    try:
        say(Done(fetch(order, say)))
    except (Unfetchable, NoRoom) as error:
        say(Failed(str(error)))
    except Exception as error:  # noqa: BLE001 - each store's library has errors of its own, and all of them are the answer
        say(Failed(hidden(explained(error, order), order)))


def fetch(order: Order, say: Callable[[Word], None]) -> str:
    """The revision of what is in the cache now. Raises Unfetchable, NoRoom, and whatever the store's library raises."""
    cache = Cache(Path(order.directory), order.limit)
    cache.sweep()
    store = open_store(order)
    with cache.turn(order.uri):
        listing = store.listing()
        check_paths(listing.entries)
        known = cache.known(order.uri, listing.state) if listing.state else None
        if known is not None:
            check_revision(order, known)
            if cache.has(known):
                return known
        with cache.draft(listing.nbytes) as draft:
            os.environ["TMPDIR"] = str(draft.scratch)
            bring_all(store, listing, draft.files, say)
            if listing.state and store.listing().state != listing.state:
                raise Unfetchable("it was changed while it was fetched: try again when that is done")
            revision = cache.keep(draft, order.uri, listing.name)
            if listing.state:
                cache.note(order.uri, listing.state, revision, draft)
    check_revision(order, revision)
    return revision


def check_revision(order: Order, revision: str) -> None:
    """Replicas of one model must not differ."""
    if order.revision not in ("", revision):
        raise Unfetchable(
            f"what is there has changed: this model's other replicas have the artifact {order.revision}, and it is {revision} now; "
            f"put a new version under a URI of its own and write that into storageUri, or put the old bytes back"
        )


def bring_all(store: Store, listing: Listing, directory: Path, say: Callable[[Word], None]) -> None:
    lock, fetched, told = threading.Lock(), 0, monotonic()
    total = listing.nbytes
    say(Progress(0, total))

    def came(nbytes: int) -> None:
        nonlocal fetched, told
        with lock:
            fetched += nbytes
            if monotonic() - told >= TELL_EVERY:
                told = monotonic()
                say(Progress(fetched, total))

    for entry in listing.entries:
        (directory / entry.path).parent.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(AT_ONCE) as threads:
        for future in [threads.submit(store.bring, entry, directory / entry.path, came) for entry in listing.entries]:
            future.result()
    for entry in listing.entries:
        path = directory / entry.path
        if entry.size is not None and path.is_file() and path.stat().st_size != entry.size:
            raise Unfetchable(f"{entry.path} came with {path.stat().st_size} bytes, and its store says {entry.size}")
    say(Progress(fetched, total))


def explained(error: Exception, order: Order) -> str:
    """In words, with what was tried."""
    cause = error.__cause__
    if isinstance(error, FileNotFoundError) and (cause is None or isinstance(cause, FileNotFoundError) or getattr(cause, "status", 0) == NOT_FOUND):
        return "there is nothing at this URI, or these credentials may not see it"
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"the disk of the cache {order.directory} became full: give it a larger volume, or the Server a smaller cache.size"
    if isinstance(error, FileNotFoundError) and cause is not None:  # so fsspec says that a host could not be reached
        return f"{type(cause).__name__}: {cause}"
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, PermissionError):
        tried = f"the Secret's {', '.join(sorted(order.secret))}" if order.secret else "the pod's own identity, if it has one"
        return f"access was refused ({text}); tried with {tried}"
    return text


def hidden(text: str, order: Order) -> str:
    """Without what is secret: it becomes a condition that many may read."""
    for value in order.secret.values():
        if len(value) >= _SHORTEST_HIDDEN:
            text = text.replace(value, "***")
    return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}..."


if __name__ == "__main__":
    main()
