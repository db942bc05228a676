"""What the verbs that look into a cluster have in common: which one, and what it says when it cannot be read."""

import asyncio
from argparse import Namespace
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from wakeful.cli.cluster_extra import complain_of_missing
from wakeful.cli.parser import NO, WRONG_USE, Parser, complain

if TYPE_CHECKING:
    from wakeful.cluster.controller.api import Api


def add_access(parser: Parser) -> None:
    parser.epilog = None  # neither variables nor a file of ours has a say
    parser.add_argument("-n", "--namespace", metavar="NAME", help="where the objects are (default: the namespace of the kubeconfig's context)")
    parser.add_argument("--kubeconfig", metavar="FILE", help="the cluster and who asks (default: KUBECONFIG, ~/.kube/config, or a pod's own account)")


def with_api(arguments: Namespace, work: Callable[["Api"], Awaitable[int]]) -> int:
    """The exit status of `work`, or that of a cluster that cannot be read."""
    try:
        from wakeful.cluster.controller.api import FORBIDDEN, UNREACHED, Api, NoAccess, Refusal  # noqa: PLC0415 - an extra, and help does without
    except ImportError as error:
        return complain_of_missing("what speaks to Kubernetes", error)

    async def whole() -> int:
        api = Api(arguments.namespace, arguments.kubeconfig)
        try:
            return await work(api)
        finally:
            await api.close()

    try:
        return asyncio.run(whole())
    except NoAccess as error:
        complain(f"no cluster is known: {error}", ("hint", "--kubeconfig FILE, or the variable KUBECONFIG"))
        return WRONG_USE
    except Refusal as error:
        hints = {
            UNREACHED: "is the cluster up, and the kubeconfig's the right one?",
            FORBIDDEN: "it takes get and list on models.wakeful.dev, servers.wakeful.dev and events",
        }
        complain(str(error), *([("hint", hints[error.code])] if error.code in hints else []))
        return NO
