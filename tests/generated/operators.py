"""Operators that a generated graph is made of: those that treat each row alone, and those that do not.

Each takes a matrix [rows, width] of the graph and adds what it gives to the graph. Where a result depends on a threshold, only exact values
may come in, as rounding would tip it over.
"""

from collections.abc import Callable

import numpy as np

from tests.generated.graph import EXACT_LIMIT, MANY, UNIT, Graph, Value

Operator = Callable[[Graph, Value], None]


def int64s(g: Graph, *values: int) -> str:
    return g.constant(values, np.int64)


# ── each row alone ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def negate(g: Graph, x: Value) -> None:
    g.matrix(g.node(g.rng.choice(["Neg", "Abs", "Relu", "Identity"]), [x]), x.shape, bound=x.bound, error=x.error)


def shift(g: Graph, x: Value) -> None:
    g.matrix(g.node(g.rng.choice(["Add", "Sub"]), [x, g.constant(g.whole(x.width))]), x.shape, bound=x.bound + 3, error=x.error)


def scale(g: Graph, x: Value) -> None:
    """By as much as a thousand: what is added later is faint beside it."""
    factor = g.rng.choice([2.0, 3.0, 64.0, 1024.0])
    g.matrix(g.node("Mul", [x, g.constant(factor)]), x.shape, bound=factor * x.bound, error=factor * (x.error + UNIT * x.bound * (not x.exact)))


def squash(g: Graph, x: Value) -> None:
    g.matrix(g.node(g.rng.choice(["Tanh", "Sigmoid", "Erf"]), [x]), x.shape, bound=1.0, error=1.2 * x.error + 16 * UNIT)


def exponential(g: Graph, x: Value) -> None:
    small = g.node("Clip", [x, g.constant(-1.0), g.constant(1.0)])
    g.matrix(g.node("Exp", [small]), x.shape, bound=2.8, error=2.8 * x.error + 32 * UNIT)


def halve(g: Graph, x: Value) -> None:
    if x.exact:
        half = g.node("Mul", [x, g.constant(0.5)])
        g.matrix(g.node(g.rng.choice(["Floor", "Ceil", "Round"]), [half]), x.shape, bound=x.bound, error=0.0)


def softmax_of_a_row(g: Graph, x: Value) -> None:
    g.matrix(g.node("Softmax", [x], axis=1), x.shape, bound=1.0, error=x.error + 32 * UNIT)


def project(g: Graph, x: Value) -> None:
    width = g.rng.choice([1, 2, 4, 9])
    weights = g.whole(x.width, width, most=2)
    gain = float(np.abs(weights).sum(0).max())
    if x.bound * gain > EXACT_LIMIT:
        return
    error = gain * x.error + (0.0 if x.exact else x.width * UNIT * gain * x.bound)
    if g.rng.random() < 0.5:
        product = g.node("MatMul", [x, g.constant(weights)])
        g.matrix(product, (x.shape[0], width), bound=gain * x.bound, error=error)
    else:
        product = g.node("Gemm", [x, g.constant(weights), g.constant(g.whole(width))])
        g.matrix(product, (x.shape[0], width), bound=gain * x.bound + 3, error=error)


def normalise_a_row(g: Graph, x: Value) -> None:
    """With a large epsilon, so that it cannot magnify errors more than by four."""
    ones = g.constant(np.ones(x.width))
    g.matrix(g.node("LayerNormalization", [x, ones], axis=1, epsilon=1.0), x.shape, bound=4.0, error=4 * x.error + 64 * UNIT * (x.bound + 1))


def centre_a_row(g: Graph, x: Value) -> None:
    mean = g.node("ReduceMean", [x], axes=[1], keepdims=1)
    g.matrix(g.node("Sub", [x, mean]), x.shape, bound=2 * x.bound, error=2 * x.error + 8 * x.width * UNIT * x.bound)


def sum_of_a_row(g: Graph, x: Value) -> None:
    error = x.width * (x.error + UNIT * x.bound * (not x.exact))
    if g.rng.random() < 0.5:
        g.matrix(g.node("ReduceSum", [x, int64s(g, 1)], keepdims=1), (x.shape[0], 1), bound=x.width * x.bound, error=error)
    else:
        g.other(g.node("ReduceSum", [x, int64s(g, 1)], keepdims=0), x.shape[:1], bound=x.width * x.bound, error=error)


def largest_of_a_row(g: Graph, x: Value) -> None:
    g.matrix(g.node("ReduceMax", [x], axes=[1], keepdims=1), (x.shape[0], 1), bound=x.bound, error=x.error)


def place_of_the_largest(g: Graph, x: Value) -> None:
    if x.exact:
        g.other(g.node("ArgMax", [x], axis=1, keepdims=0), x.shape[:1], "INT64")


def join(g: Graph, x: Value) -> None:
    y = g.rng.choice([one for one in g.matrices if one.shape[0] == x.shape[0]])
    if x.width + y.width <= 24:
        g.matrix(
            g.node("Concat", [x, y], axis=1), (x.shape[0], x.width + y.width), bound=max(x.bound, y.bound), error=max(x.error, y.error)
        )


def add(g: Graph, x: Value) -> None:
    y = g.rng.choice([one for one in g.matrices if one.shape[0] == x.shape[0] and one.width in (1, x.width)])
    error = x.error + y.error
    g.matrix(g.node("Add", [x, y]), x.shape, bound=x.bound + y.bound, error=error + UNIT * (x.bound + y.bound) * (error > 0))


def columns(g: Graph, x: Value) -> None:
    if x.width > 1:
        end = g.rng.randint(1, x.width)
        g.matrix(g.node("Slice", [x, int64s(g, 0), int64s(g, end), int64s(g, 1)]), (x.shape[0], end), bound=x.bound, error=x.error)


def sort_a_row(g: Graph, x: Value) -> None:
    if x.exact:
        most = g.rng.randint(1, x.width)
        places = g.node("TopK", [x, int64s(g, most)], outputs=2, axis=1)
        g.matrix(places.replace("_1", "_0"), (x.shape[0], most), bound=x.bound)
        g.other(places, (x.shape[0], most), "INT64")


def running_sum_of_a_row(g: Graph, x: Value) -> None:
    axis = g.constant(1, np.int64)
    error = x.width * (x.error + UNIT * x.bound * (not x.exact))
    g.matrix(g.node("CumSum", [x, axis]), x.shape, bound=x.width * x.bound, error=error)


def look_up(g: Graph, x: Value) -> None:
    """Rows of a table, by the first column."""
    if x.exact:
        first = g.node("Slice", [x, int64s(g, 0), int64s(g, 1), int64s(g, 1)])
        place = g.node("Cast", [g.node("Clip", [first, g.constant(-5.0), g.constant(4.0)])], to=7)
        flat = g.node("Squeeze", [place, int64s(g, 1)])
        width = g.rng.choice([1, 3])
        g.matrix(g.node("Gather", [g.constant(g.whole(5, width)), flat]), (x.shape[0], width), bound=3.0)


def choose(g: Graph, x: Value) -> None:
    if x.exact:
        above = g.node("Greater", [x, g.constant(float(g.rng.randint(-4, 4)))])
        g.matrix(g.node("Where", [above, x, g.constant(-1.0)]), x.shape, bound=max(x.bound, 1.0))


def there_and_back(g: Graph, x: Value) -> None:
    g.matrix(g.node("Transpose", [g.node("Transpose", [x], perm=[1, 0])], perm=[1, 0]), x.shape, bound=x.bound, error=x.error)


def reshape_by_its_shape(g: Graph, x: Value) -> None:
    """As exporters write it: the number of rows is asked for, and put in again."""
    rows = g.node("Shape", [x], start=0, end=1)
    sizes = g.node("Concat", [rows, int64s(g, x.width, 1)], axis=0)
    cube = g.node("Reshape", [x, sizes])
    g.other(cube, (x.shape[0], x.width, 1), bound=x.bound, error=x.error)
    zeros = g.node("ConstantOfShape", [g.node("Shape", [x])])
    g.matrix(g.node("Add", [zeros, x]), x.shape, bound=x.bound, error=x.error)


def is_positive(g: Graph, x: Value) -> None:
    if x.exact:
        g.other(g.node("Greater", [x, g.constant(0.0)]), x.shape, "BOOL")


def as_integers(g: Graph, x: Value) -> None:
    if x.exact:
        g.other(g.node("Cast", [x], to=7), x.shape, "INT64")


# ── rows influence each other ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def softmax_of_the_batch(g: Graph, x: Value) -> None:
    g.matrix(g.node("Softmax", [x], axis=0), x.shape, bound=1.0, error=x.error + 64 * UNIT)


def centre_the_batch(g: Graph, x: Value) -> None:
    mean = g.node("ReduceMean", [x], axes=[0], keepdims=1)
    g.matrix(g.node("Sub", [x, mean]), x.shape, bound=2 * x.bound, error=2 * x.error + MANY * UNIT * x.bound)


def normalise_the_batch(g: Graph, x: Value) -> None:
    mean = g.node("ReduceMean", [x], axes=[0], keepdims=1)
    rest = g.node("Sub", [x, mean])
    spread = g.node("ReduceMean", [g.node("Mul", [rest, rest])], axes=[0], keepdims=1)
    divisor = g.node("Sqrt", [g.node("Add", [spread, g.constant(1.0)])])
    g.matrix(g.node("Div", [rest, divisor]), x.shape, bound=8.0, error=4 * x.error + 2 * MANY * UNIT * (x.bound + 1))


def add_the_sum(g: Graph, x: Value) -> None:
    """Of each column, or of everything; or only the largest."""
    error = x.error + MANY * x.width * (x.error + UNIT * x.bound * (not x.exact))
    bound = x.bound * (1 + MANY * x.width)
    if g.rng.random() < 0.5:
        total = g.node("ReduceSum", [x, int64s(g, 0)], keepdims=1)
    elif g.rng.random() < 0.5:
        total = g.node("ReduceSum", [x], keepdims=0)
    else:
        total = g.node("ReduceMax", [x], keepdims=0)
    g.matrix(g.node("Add", [x, total]), x.shape, bound=bound, error=error)


def running_sum(g: Graph, x: Value) -> None:
    axis = g.constant(0, np.int64)
    error = MANY * (x.error + UNIT * x.bound * (not x.exact))
    g.matrix(g.node("CumSum", [x, axis]), x.shape, bound=MANY * x.bound, error=error)


def sort_columns(g: Graph, x: Value) -> None:
    if x.exact:
        rows = g.node("Shape", [x], start=0, end=1)
        places = g.node("TopK", [x, rows], outputs=2, axis=0)
        g.matrix(places.replace("_1", "_0"), x.shape, bound=x.bound)


def best_rows(g: Graph, x: Value) -> None:
    """Fails where there are fewer."""
    if x.exact:
        most = g.rng.randint(1, 3)
        places = g.node("TopK", [x, int64s(g, most)], outputs=2, axis=0)
        g.matrix(places.replace("_1", "_0"), (most, x.width), bound=x.bound)


def reverse(g: Graph, x: Value) -> None:
    backwards = g.node("Slice", [x, int64s(g, -1), int64s(g, -(2**40)), int64s(g, 0), int64s(g, -1)])
    g.matrix(backwards, x.shape, bound=x.bound, error=x.error)


def rotate(g: Graph, x: Value) -> None:
    head = g.node("Slice", [x, int64s(g, 0), int64s(g, 1), int64s(g, 0)])
    tail = g.node("Slice", [x, int64s(g, 1), int64s(g, 2**40), int64s(g, 0)])
    g.matrix(g.node("Concat", [tail, head], axis=0), x.shape, bound=x.bound, error=x.error)


def add_the_first(g: Graph, x: Value) -> None:
    first = g.node("Gather", [x, int64s(g, 0)], axis=0)
    g.matrix(g.node("Add", [x, first]), x.shape, bound=2 * x.bound, error=2 * x.error + 2 * UNIT * x.bound * (not x.exact))


def add_the_count(g: Graph, x: Value) -> None:
    rows = g.node("Cast", [g.node("Shape", [x], start=0, end=1)], to=1)
    g.matrix(g.node("Add", [x, rows]), x.shape, bound=x.bound + MANY, error=x.error + UNIT * (x.bound + MANY) * (not x.exact))


def add_the_number(g: Graph, x: Value) -> None:
    """Of each row."""
    ones = g.node("ConstantOfShape", [g.node("Shape", [x])])
    places = g.node("CumSum", [g.node("Add", [ones, g.constant(1.0)]), g.constant(0, np.int64)])
    g.matrix(g.node("Add", [x, places]), x.shape, bound=x.bound + MANY, error=x.error + UNIT * (x.bound + MANY) * (not x.exact))


def grow_with_the_count(g: Graph, x: Value) -> None:
    """By a thousandth for each row, or for the number of each row."""
    bound = x.bound * (1024 + MANY)
    if x.exact and bound <= EXACT_LIMIT:
        if g.rng.random() < 0.5:
            count = g.node("Cast", [g.node("Shape", [x], start=0, end=1)], to=1)
        else:
            ones = g.node("Add", [g.node("ConstantOfShape", [g.node("Shape", [x])]), g.constant(1.0)])
            count = g.node("CumSum", [ones, g.constant(0, np.int64)])
        g.matrix(g.node("Mul", [x, g.node("Add", [count, g.constant(1024.0)])]), x.shape, bound=bound)


def more_than(g: Graph, x: Value) -> None:
    """Another answer from so many rows on."""
    rows = g.node("Shape", [x], start=0, end=1)
    many = g.node("Greater", [rows, int64s(g, g.rng.randint(1, 7))])
    g.matrix(g.node("Where", [many, g.node("Neg", [x]), x]), x.shape, bound=x.bound, error=x.error)


def if_any(g: Graph, x: Value) -> None:
    """Another answer if any row has something large."""
    if x.exact:
        large = g.node("Greater", [g.node("ReduceMax", [x], keepdims=0), g.constant(float(g.rng.randint(0, 6)))])
        g.matrix(g.node("Where", [large, g.node("Neg", [x]), x]), x.shape, bound=x.bound)


def first_rows(g: Graph, x: Value) -> None:
    """No more than so many are answered."""
    most = g.rng.randint(1, 7)
    name = g.node("Slice", [x, int64s(g, 0), int64s(g, most), int64s(g, 0)])
    g.matrix(name, ("?", x.width), bound=x.bound, error=x.error)


def as_wide_as_the_largest(g: Graph, x: Value) -> None:
    """So many columns as the largest element says."""
    if x.exact and x.bound <= 64:
        rows = g.node("Shape", [x], start=0, end=1)
        zeros = g.node("ConstantOfShape", [g.node("Concat", [rows, int64s(g, 64)], axis=0)])
        wide = g.node("Concat", [x, zeros], axis=1)
        largest = g.node("Reshape", [g.node("ReduceMax", [x], keepdims=0), int64s(g, 1)])
        end = g.node("Cast", [g.node("Clip", [largest, g.constant(1.0), g.constant(64.0)])], to=7)
        g.other(g.node("Slice", [wide, int64s(g, 0), end, int64s(g, 1)]), (x.shape[0], None), bound=x.bound)


def with_each_other(g: Graph, x: Value) -> None:
    """A product with the transposed: [N,N], or attention between rows."""
    bound = x.width * x.bound**2
    if bound * x.bound * MANY > EXACT_LIMIT:
        return
    product = g.node("MatMul", [x, g.node("Transpose", [x], perm=[1, 0])])
    error = 2 * x.width * x.bound * (x.error + UNIT * x.bound * (not x.exact))
    g.other(product, (x.shape[0], x.shape[0]), bound=bound, error=error)
    if x.exact:
        g.matrix(g.node("MatMul", [product, x]), x.shape, bound=bound * x.bound * MANY)


def indices(g: Graph, x: Value) -> None:
    if x.exact:
        g.other(g.node("Transpose", [g.node("NonZero", [x])], perm=[1, 0]), ("?", 2), "INT64")


def distinct(g: Graph, x: Value) -> None:
    if x.exact:
        g.matrix(g.node("Unique", [x], axis=0), ("?", x.width), bound=x.bound)


def rows_with(g: Graph, x: Value) -> None:
    """Only those whose first column is positive."""
    if x.exact:
        first = g.node("Slice", [x, int64s(g, 0), int64s(g, 1), int64s(g, 1)])
        good = g.node("Greater", [g.node("Squeeze", [first, int64s(g, 1)]), g.constant(0.0)])
        g.matrix(g.node("Compress", [x, good], axis=0), ("?", x.width), bound=x.bound)


def append(g: Graph, x: Value) -> None:
    """Twice the rows, or one more."""
    if g.rng.random() < 0.5:
        g.matrix(g.node("Concat", [x, x], axis=0), ("?", x.width), bound=x.bound, error=x.error)
    else:
        extra = g.constant(g.whole(1, x.width))
        g.matrix(g.node("Concat", [x, extra], axis=0), ("?", x.width), bound=max(x.bound, 3.0), error=x.error)


def turn(g: Graph, x: Value) -> None:
    g.other(g.node("Transpose", [x], perm=[1, 0]), (x.width, x.shape[0]), bound=x.bound, error=x.error)


def flatten(g: Graph, x: Value) -> None:
    if x.width > 1:
        g.other(g.node("Reshape", [x, int64s(g, -1)]), ("?",), bound=x.bound, error=x.error)


def fold(g: Graph, x: Value) -> None:
    """Two rows beside each other: fails for an odd number of them."""
    g.matrix(g.node("Reshape", [x, int64s(g, -1, 2 * x.width)]), ("?", 2 * x.width), bound=x.bound, error=x.error)


def statistics(g: Graph, x: Value) -> None:
    """Of the batch, as an output beside the rows: a scalar, a row, the shape, or a constant."""
    match g.rng.randint(0, 3):
        case 0:
            g.other(g.node("ReduceMax", [x], keepdims=0), (), bound=x.bound, error=x.error)
        case 1:
            g.other(g.node("ReduceMax", [x], axes=[0], keepdims=1), (1, x.width), bound=x.bound, error=x.error)
        case 2:
            g.other(g.node("Shape", [x]), (2,), "INT64")
        case _:
            g.other(g.node("Identity", [g.constant(g.whole(2))]), (2,))


def quantise(g: Graph, x: Value) -> None:
    """In eight bits by the range of the whole batch."""
    if x.exact:
        names = g.node("DynamicQuantizeLinear", [x], outputs=3)
        g.other(names.replace("_2", "_0"), x.shape, "UINT8")


ROW_WISE: list[Operator] = [
    negate, shift, scale, squash, exponential, halve, softmax_of_a_row, project, normalise_a_row, centre_a_row, sum_of_a_row, largest_of_a_row,
    place_of_the_largest, join, add, columns, sort_a_row, running_sum_of_a_row, look_up, choose, there_and_back, reshape_by_its_shape,
    is_positive, as_integers,
]
CROSSING: list[Operator] = [
    softmax_of_the_batch, centre_the_batch, normalise_the_batch, add_the_sum, running_sum, sort_columns, best_rows, reverse, rotate, add_the_first,
    add_the_count, add_the_number, grow_with_the_count, more_than, if_any, first_rows, as_wide_as_the_largest, with_each_other, indices, distinct,
    rows_with, append, turn, flatten, fold, statistics, quantise,
]
