"""What takes long is done in a thread, while the loop goes on."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from wakeful.errors import WakefulError

T = TypeVar("T")


async def here_or_elsewhere(work: Callable[[], T], size: int, limit: int) -> T:
    """The result of `work`, which is done in a thread where it would hold up the loop. For coroutines; `elsewhere` is for what is none."""
    return await asyncio.to_thread(work) if size > limit else work()


def elsewhere(work: Callable[[], T], then: Callable[[Callable[[], T]], None], go_on: Callable[[Callable[[], None]], None]) -> None:
    """Do `work` in a thread. `then` is called in the loop, with a function that gives the result or raises what `work` raised.

    `go_on` is the connection's: the request stays the current one, and if its client leaves meanwhile, nothing more happens."""

    def bare() -> T:
        try:
            return work()
        except WakefulError as error:  # many may wait to be told, and their frames hold what was made of the bodies until then
            error.__context__ = None
            raise error.with_traceback(None) from None

    def done(future: "asyncio.Future[T]") -> None:
        if future.cancelled():
            return
        future.exception()  # or asyncio would complain where nobody takes it
        go_on(partial(then, future.result))

    asyncio.get_running_loop().run_in_executor(None, bare).add_done_callback(done)
