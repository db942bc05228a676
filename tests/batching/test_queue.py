"""The queue of one replica, example by example and against a slow, obvious one."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from wakeful.batching.queue import ALONE, BatchQueue
from wakeful.inference import FOREVER, InferRequest


def request(arrived: float, rows: int = 1, group: str | None = "a", deadline: float = FOREVER) -> InferRequest:
    made = InferRequest("m", (), arrived=arrived, deadline=deadline)
    made.rows, made.group = rows, group
    return made


def filled(*requests: InferRequest) -> BatchQueue:
    queue = BatchQueue()
    for one in requests:
        queue.push(one)
    return queue


def batches(queue: BatchQueue, max_rows: int) -> list[list[int]]:
    """Row counts of all batches to come."""
    found = []
    while queue.size:
        found.append([one.rows for one in queue.take(max_rows)[0]])
    return found


def test_rows_are_counted_not_requests() -> None:
    """C07."""
    assert batches(filled(*(request(i, 4) for i in range(4))), 8) == [[4, 4], [4, 4]]
    assert batches(filled(request(0, 7), request(1, 7), request(2, 6)), 8) == [[7], [7], [6]]


def test_a_larger_request_goes_alone_and_a_small_one_does_not_overtake_it() -> None:
    assert batches(filled(request(0, 2), request(1, 20), request(2, 1)), 8) == [[2], [20], [1]]


def test_groups_run_apart_and_the_oldest_is_first() -> None:
    """C09."""
    a, b, c = request(0, 1, "15"), request(1, 3, "20"), request(2, 2, "15")
    queue = filled(a, b, c)
    assert queue.head() == (3, 0)
    assert queue.take(8) == ([a, c], [])
    assert queue.head() == (3, 1)
    assert queue.take(8) == ([b], [])
    assert queue.head() is None
    assert queue.take(8) == ([], [])


def test_no_group_starves_beside_a_crowd() -> None:
    """C12: a feeder keeps one group full; the other starts as soon as it is the oldest."""
    queue, taken = filled(*(request(i, 1, "crowd") for i in range(20))), 0
    lonely = request(20, 1, "lonely")
    queue.push(lonely)
    for step in range(21, 200):
        queue.push(request(step, 1, "crowd"))
        taken += 1
        if lonely in queue.take(8)[0]:
            break
    assert taken == 4  # 20 older rows are 2.5 runs


def test_requests_without_a_group_run_alone_and_count_as_full() -> None:
    a, b, c = request(0, 1, None), request(1, 1, None), request(2)
    queue = filled(a, b, c)
    assert queue.head() == (ALONE, 0)
    assert [queue.take(8)[0] for _ in range(3)] == [[a], [b], [c]]


def test_callers_that_left_and_those_that_are_late_cost_no_run() -> None:
    """C06."""
    gone, late, good, other = request(0), request(1, deadline=5.0), request(2, deadline=5.1), request(3, group="b")
    queue = filled(gone, late, good, other)
    gone.left = True
    assert queue.take(8, now=5.0) == ([good], [gone, late])
    assert queue.take(8, now=5.0) == ([other], [])


def test_dropped_ones_do_not_hide_those_behind_them() -> None:
    """A group that has all left gives way to the next within the same call."""
    gone, good = request(0), request(1, group="b")
    queue = filled(gone, good)
    gone.left = True
    assert queue.take(8) == ([good], [gone])
    assert (queue.size, queue.rows) == (0, 0)


def test_a_group_whose_oldest_is_dropped_gives_way_to_the_one_that_is_older_now() -> None:
    late, older, younger = request(0, deadline=3.0), request(1, group="b"), request(2)
    queue = filled(late, older, younger)
    assert queue.take(8, now=3.0) == ([older], [late])
    assert queue.take(8, now=3.0) == ([younger], [])


def test_expire_names_them_and_makes_the_next_deadline_exact() -> None:
    soon, later, gone, never = request(0, deadline=5.0), request(1, 2, "b", deadline=9.0), request(2, group="b"), request(3, group="c")
    queue = filled(soon, later, gone, never)
    gone.left = True
    assert queue.next_deadline() == 5.0
    assert queue.expire(4.9) == [gone]
    assert queue.expire(5.0) == [soon]
    assert queue.next_deadline() == 9.0
    assert queue.head() == (2, 1)
    assert queue.take(8) == ([later], [])
    assert queue.expire(100.0) == []
    assert queue.next_deadline() == FOREVER


def test_work_that_comes_from_another_replica_keeps_its_place() -> None:
    mine, stolen = filled(request(2), request(4), request(5, group="b")), filled(request(1), request(3), request(0, group="c"))
    for one in stolen.drain():
        mine.push(one)
    assert [one.arrived for one in mine.take(8)[0]] == [0]
    assert [one.arrived for one in mine.take(8)[0]] == [1, 2, 3, 4]
    assert [one.arrived for one in mine.take(8)[0]] == [5]


def test_steal_takes_the_oldest_batch_and_loses_nobody() -> None:
    gone = request(0)
    queue = filled(gone, *(request(i, 2) for i in range(1, 6)))
    gone.left = True
    stolen = queue.steal(4)
    assert [one.arrived for one in stolen] == [1, 2, 0]
    assert (queue.size, queue.rows) == (3, 6)


def test_drain_is_in_order_of_arrival() -> None:
    queue = filled(request(0), request(1, group="b"), request(2), request(3, group=None))
    assert [one.arrived for one in queue.drain()] == [0, 1, 2, 3]
    assert (queue.size, queue.rows, queue.head()) == (0, 0, None)


@given(st.lists(st.tuples(st.integers(1, 9), st.sampled_from(["a", "b", None])), max_size=40), st.integers(1, 8))
def test_every_request_comes_out_once_in_lawful_batches(wishes: list[tuple[int, str | None]], max_rows: int) -> None:
    requests = [request(float(i), rows, group) for i, (rows, group) in enumerate(wishes)]
    queue, seen = filled(*requests), []
    while queue.size:
        oldest = min((one for one in requests if one not in seen), key=lambda one: one.arrived)
        batch, dropped = queue.take(max_rows)
        assert batch[0] is oldest
        assert not dropped
        assert len({one.group for one in batch}) == 1
        assert len(batch) == 1 or (sum(one.rows for one in batch) <= max_rows and batch[0].group is not None)
        seen += batch
    assert sorted(one.arrived for one in seen) == [one.arrived for one in requests]


class QueueAgainstList(RuleBasedStateMachine):
    """Any sequence of calls agrees with a plain list of what waits."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = BatchQueue()
        self.waiting: list[InferRequest] = []
        self.now = 0.0

    @rule(rows=st.integers(1, 5), group=st.sampled_from(["a", "b", "c", None]), age=st.sampled_from([0.0, 0.0, 2.5]), life=st.floats(0.0, 9.0))
    def push(self, rows: int, group: str | None, age: float, life: float) -> None:
        self.now += 1.0
        one = request(self.now - age, rows, group, self.now + life)
        self.queue.push(one)
        self.waiting.append(one)

    @rule(index=st.integers(0, 50))
    def leave(self, index: int) -> None:
        if self.waiting:
            self.waiting[index % len(self.waiting)].left = True

    @rule(max_rows=st.integers(1, 8))
    def take(self, max_rows: int) -> None:
        batch, dropped = self.queue.take(max_rows, self.now)
        assert all(one.left or one.deadline <= self.now for one in dropped)
        assert not any(one.left or one.deadline <= self.now for one in batch)
        self._remove(batch + dropped)
        live = [one for one in self.waiting if not one.left and one.deadline > self.now]
        if batch:
            assert batch[0].arrived <= min((one.arrived for one in live), default=FOREVER)
            assert [one.arrived for one in batch] == sorted(one.arrived for one in batch)
        else:
            assert not self.waiting

    @rule(max_rows=st.integers(1, 8))
    def steal(self, max_rows: int) -> None:
        self._remove(self.queue.steal(max_rows))

    @rule()
    def expire(self) -> None:
        self._remove(self.queue.expire(self.now))
        assert not any(one.left or one.deadline <= self.now for one in self.waiting)
        assert self.queue.next_deadline() == min((one.deadline for one in self.waiting), default=FOREVER)

    @rule()
    def drain(self) -> None:
        everything = self.queue.drain()
        assert [one.arrived for one in everything] == sorted(one.arrived for one in self.waiting)
        self._remove(everything)

    @invariant()
    def agrees(self) -> None:
        assert self.queue.size == len(self.waiting)
        assert self.queue.rows == sum(one.rows for one in self.waiting)
        assert self.queue.next_deadline() <= min((one.deadline for one in self.waiting), default=FOREVER)
        head = self.queue.head()
        assert (head is None) == (not self.waiting)
        if head is not None:
            oldest = min(one.arrived for one in self.waiting)
            assert head[1] == oldest
            groups = {one.group for one in self.waiting if one.arrived == oldest}
            assert head[0] in {ALONE if group is None else sum(one.rows for one in self.waiting if one.group == group) for group in groups}

    def _remove(self, gone: list[InferRequest]) -> None:
        for one in gone:
            self.waiting.remove(one)


TestQueueAgainstList = QueueAgainstList.TestCase
