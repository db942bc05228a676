import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.replicas.scaling import Hold, ScaleLimits, ScaleView, Step, decide, gained

SEED = ScaleLimits(queue_threshold=8, max_replicas=4)


def test_one_more_when_the_smallest_queue_exceeds_the_threshold() -> None:
    step = decide(ScaleView([11], loaded=1), SEED)
    assert step == Step(1, "queue 11 > 8 on the only replica, 1 -> 2 replicas")
    step = decide(ScaleView([20, 11, 12], loaded=3), SEED)
    assert step == Step(1, "queue 11 > 8 on every replica, 3 -> 4 replicas")


def test_the_threshold_itself_is_fine_and_so_is_one_short_queue() -> None:
    assert decide(ScaleView([8], loaded=1), SEED) is None
    assert decide(ScaleView([100, 100, 8], loaded=3), SEED) is None


def test_a_starting_replica_counts_as_empty_so_that_one_arrival_starts_one() -> None:
    assert decide(ScaleView([50, 0], loaded=2), SEED) is None
    assert isinstance(decide(ScaleView([50, 9], loaded=2), SEED), Step)


def test_the_ceiling_of_the_model() -> None:
    held = decide(ScaleView([9, 9, 9, 9], loaded=4), SEED)
    assert held == Hold("max_replicas", "queue 9 > 8 on every replica, but 4 of max_replicas 4 run")


def test_the_ceiling_of_the_daemon() -> None:
    limits = ScaleLimits(max_loaded=3)
    assert isinstance(decide(ScaleView([9], loaded=2), limits), Step)
    held = decide(ScaleView([9], loaded=3), limits)
    assert held == Hold("max_loaded", "queue 9 > 8 on the only replica, but 3 replicas are loaded (max_loaded_models 3)")


def test_below_the_number_of_cores_a_queue_alone_decides() -> None:
    assert isinstance(decide(ScaleView([9] * 3, loaded=3, cores=4), ScaleLimits()), Step)
    assert isinstance(decide(ScaleView([9] * 3, loaded=3, cores=4, useless=(100.0, 100.0)), ScaleLimits()), Step)


def test_without_a_ceiling_one_more_than_there_are_cores_needs_a_measure_to_be_judged_by() -> None:
    crowded = ScaleView([9, 9], loaded=2, cores=2)
    unclear = decide(crowded, ScaleLimits())
    assert isinstance(unclear, Hold)
    assert unclear.cause == "measuring"
    assert isinstance(decide(crowded._replace(rate=100.0), ScaleLimits()), Step)
    useless = decide(crowded._replace(rate=100.0, useless=(100.0, 104.0)), ScaleLimits())
    assert isinstance(useless, Hold)
    assert useless.cause == "no_gain"
    assert "replica 3 brought no throughput: 100 -> 104 rows/s" in useless.reason


def test_replicas_that_keep_all_cores_busy_get_no_further_one() -> None:
    crowded = ScaleView([9, 9], loaded=2, cores=2, rate=100.0)
    full = decide(crowded._replace(computing=1.9), ScaleLimits())
    assert full == Hold("cores_full", "queue 9 > 8 on every replica, but 2 replicas keep 1.9 of 2 cores busy")
    assert isinstance(decide(crowded._replace(computing=1.0), ScaleLimits()), Step), "runs that wait for something else"
    assert isinstance(decide(crowded._replace(computing=1.9), ScaleLimits(max_replicas=4)), Step), "somebody has said how far to go"


def test_throughput_is_no_reason_on_a_gpu_or_below_a_ceiling_that_somebody_gave() -> None:
    useless = ScaleView([9, 9], loaded=2, cores=2, useless=(100.0, 90.0))
    assert isinstance(decide(useless._replace(cores=None), ScaleLimits()), Step)
    assert isinstance(decide(useless, ScaleLimits(max_replicas=4)), Step)


@pytest.mark.parametrize(("after", "worth"), [(90.0, False), (109.0, False), (110.1, True), (200.0, True)])
def test_a_trial_has_to_bring_a_tenth(after: float, worth: bool) -> None:
    assert gained(100.0, after) is worth


def test_a_sleeping_model_wakes_with_what_is_configured_and_whatever_is_loaded() -> None:
    asleep = ScaleView([], loaded=5)
    for limits, count in (
        (ScaleLimits(), 1),
        (ScaleLimits(min_replicas=2), 2),
        (ScaleLimits(fixed=3), 3),
        (ScaleLimits(fixed=3, max_loaded=7), 2),
        (ScaleLimits(max_loaded=5), 1),
    ):
        assert decide(asleep, limits) == Step(count, "a request for a sleeping model")


def test_a_fixed_number_is_kept_whatever_the_queues_say() -> None:
    limits = ScaleLimits(fixed=3, max_loaded=10)
    assert decide(ScaleView([99, 99, 99], loaded=3), limits) is None
    assert decide(ScaleView([0], loaded=1), limits) == Step(2, "1 of replicas 3")
    assert decide(ScaleView([0], loaded=9), limits) == Step(1, "1 of replicas 3")
    held = decide(ScaleView([0], loaded=10), limits)
    assert held == Hold("max_loaded", "1 of replicas 3, but 10 replicas are loaded (max_loaded_models 10)")


def test_the_floor_is_refilled_before_load_matters() -> None:
    assert decide(ScaleView([0], loaded=1), ScaleLimits(min_replicas=3)) == Step(2, "1 of min_replicas 3")


@pytest.mark.parametrize("arrivals", [100])
def test_a_burst_grows_monotonically_to_the_ceiling_and_stays(arrivals: int) -> None:
    """C15: each arrival asks once; replicas that are starting hold nothing yet."""
    queues, counts = [0], []
    for _ in range(arrivals):
        step = decide(ScaleView(queues, loaded=len(queues)), SEED)
        if isinstance(step, Step):
            queues += [0] * step.count
        queues[queues.index(min(queues))] += 1
        counts.append(len(queues))
    assert counts == sorted(counts)
    assert counts[-1] == 4
    assert sum(queues) == arrivals


@given(
    st.lists(st.integers(0, 30), max_size=6),
    st.integers(0, 8),
    st.builds(
        ScaleLimits,
        st.integers(1, 10),
        st.integers(0, 5),
        st.integers(0, 3),
        st.none() | st.integers(1, 4),
        st.none() | st.integers(1, 9),
    ),
)
def test_no_step_passes_a_limit(queues: list[int], others: int, limits: ScaleLimits) -> None:
    view = ScaleView(queues, loaded=len(queues) + others)
    step = decide(view, limits)
    if not isinstance(step, Step):
        return
    assert step.count >= 1
    total = len(queues) + step.count
    if limits.fixed is not None:
        assert total <= limits.fixed
    elif limits.max_replicas:
        assert total <= max(limits.max_replicas, limits.min_replicas, 1)
    if limits.max_loaded is not None and queues:
        assert view.loaded + step.count <= limits.max_loaded
