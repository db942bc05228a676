"""Joining the inputs of a batch in a slot, and cutting its outputs into each caller's rows. Pure: bytes in, views out.

Axis 0 comes first in row-major order, so joining tensors along it is joining their bytes, and a caller's rows are one slice.
"""

from collections.abc import Sequence

from wakeful.errors import ExecutionFailed, InvalidInput
from wakeful.inference import InferRequest
from wakeful.runtime.arena import Slot, aligned
from wakeful.runtime.messages import Placement
from wakeful.tensors import Tensor, string_offsets

_tensor = tuple.__new__
"""Makes a Tensor in half the time of Tensor(...)."""

JOIN_LIMIT = 64 * 1024
"""Up to here one join and one copy is faster than many small copies."""


def collate(batch: Sequence[Sequence[Tensor]], rows: int, slot: Slot) -> tuple[tuple[Placement, ...], int]:
    """Write the inputs of a batch's requests into `slot`; return their places and the first free byte behind them.

    All requests of a merged batch have the same inputs in the same order, equal but for the size of axis 0 (see `models.signature`).
    """
    placements = []
    offset = 0
    merged = len(batch) > 1
    for position, tensor in enumerate(batch[0]):
        parts = [inputs[position].data for inputs in batch]
        nbytes = sum(map(len, parts))
        shape = (rows, *tensor.shape[1:]) if merged else tensor.shape
        view = slot.reach(offset + nbytes)
        if nbytes <= JOIN_LIMIT:
            view[offset : offset + nbytes] = b"".join(parts)
        else:
            at = offset
            for part in parts:
                view[at : at + len(part)] = part
                at += len(part)
        placements.append(Placement(tensor.name, tensor.datatype, shape, offset, nbytes))
        offset = aligned(offset + nbytes)
    return tuple(placements), offset


def whole(placements: Sequence[Placement], view: memoryview) -> list[Tensor]:
    """All outputs of a run that had one caller."""
    return [Tensor(p.name, p.datatype, p.shape, view[p.offset : p.offset + p.nbytes]) for p in placements]


def cut(placements: Sequence[Placement], row_counts: Sequence[int], view: memoryview) -> list[list[Tensor]]:
    """Each caller's outputs, in the order of `row_counts`.

    Raises ExecutionFailed when an output does not have exactly the batch's rows: a guessed cut would give callers each other's answers.
    """
    total = sum(row_counts)
    answers: list[list[Tensor]] = [[] for _ in row_counts]
    for placement in placements:
        name, datatype, shape, start, nbytes = placement.name, placement.datatype, placement.shape, placement.offset, placement.nbytes
        if not shape or shape[0] != total:
            raise ExecutionFailed(f"output {name} has shape {list(shape)} for a batch of {total} rows, so it cannot be cut by rows")
        trailing = shape[1:]
        if datatype == "BYTES":
            elements = 1
            for size in trailing:
                elements *= size
            offsets = string_offsets(view[start : start + nbytes], total * elements)
            row = 0
            for count, answer in zip(row_counts, answers, strict=True):
                first, last = start + offsets[row * elements], start + offsets[(row + count) * elements]
                answer.append(Tensor(name, datatype, (count, *trailing), view[first:last]))
                row += count
        else:
            stride = nbytes // total
            at = start
            one_row = (1, *trailing)
            for count, answer in zip(row_counts, answers, strict=True):
                end = at + count * stride
                answer.append(_tensor(Tensor, (name, datatype, one_row if count == 1 else (count, *trailing), view[at:end])))
                at = end
    return answers


def wanted(request: InferRequest, outputs: list[Tensor]) -> list[Tensor]:
    """The outputs that the caller asked for, in the caller's order; all of them if it named none.

    Raises InvalidInput for a name that is none of them, which is known only now where a model declares nothing.
    """
    if request.outputs is None:
        return outputs
    by_name = {tensor.name: tensor for tensor in outputs}
    if unknown := [name for name in request.outputs if name not in by_name]:
        raise InvalidInput.field("outputs", f"names among {sorted(by_name)}", f"{unknown[0]!r}")
    return [by_name[name] for name in request.outputs]
