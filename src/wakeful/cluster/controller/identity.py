"""Whether an agent is the pod that it says: its projected token, shown to the API server once."""

from hashlib import sha256

from wakeful.cluster.controller.api import TOKEN_REVIEW, Api, Refusal
from wakeful.cluster.wire import Hello

AUDIENCE = "wakeful"
POD_UID = "authentication.kubernetes.io/pod-uid"
REMEMBERED = 4096
"""Tokens; more than a namespace has pods."""


class Identity:
    """Tokens that were found good are remembered by their digests, so that an agent can come back while the API server is away."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._good: dict[bytes, str] = {}

    async def __call__(self, hello: Hello) -> str:
        """Why the agent is refused; empty: it is who it says."""
        if not hello.token:
            return f"the agent shows no token: its pod needs a projected one for the audience {AUDIENCE}"
        digest = sha256(hello.token.encode()).digest()
        if self._good.get(digest) == hello.uid:
            return ""
        try:
            review = await self._api.create(TOKEN_REVIEW, {"spec": {"token": hello.token, "audiences": [AUDIENCE]}})
        except Refusal as error:
            return f"the agent's token could not be checked: {error}"
        why = self._judge(review.get("status") or {}, hello.uid)
        if not why:
            while len(self._good) >= REMEMBERED:
                del self._good[next(iter(self._good))]
            self._good[digest] = hello.uid
        return why

    def _judge(self, status: dict[str, object], uid: str) -> str:
        if not status.get("authenticated"):
            return f"the API server does not accept the agent's token for the audience {AUDIENCE}: {status.get('error') or 'no reason given'}"
        user = status.get("user")
        assert isinstance(user, dict)
        if not str(user.get("username")).startswith(f"system:serviceaccount:{self._api.namespace}:"):
            return f"the agent's token is {user.get('username')}'s, and this controller serves the namespace {self._api.namespace}"
        owners = (user.get("extra") or {}).get(POD_UID) or []
        if owners != [uid]:
            return f"the agent's token is bound to the pod {', '.join(owners) or '(none)'}, and it says that it is {uid}"
        return ""
