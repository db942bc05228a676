"""Is a model's file what another server's configuration says that it is?"""

from collections.abc import Iterable, Iterator, Sequence

from wakeful.config.settings import DeclaredTensor, ForeignSettings
from wakeful.models.signature import show_shape
from wakeful.runtime.messages import Signature, TensorSpec


def disagreements(foreign: ForeignSettings, signature: Signature) -> list[str]:
    """Where the configuration and the file do not go together, in sentences."""
    sides = (("input", foreign.inputs, signature.inputs), ("output", foreign.outputs, signature.outputs))
    return [text for what, declared, there in sides for text in _of_one_side(foreign.file.name, what, declared, there)]


def _of_one_side(file: str, what: str, declared: Iterable[DeclaredTensor], there: Sequence[TensorSpec]) -> Iterator[str]:
    specs = {spec.name: spec for spec in there}
    for tensor in declared:
        spec = specs.get(tensor.name)
        if spec is None:
            yield f"{file} names an {what} {tensor.name!r}, the file has {', '.join(specs)}"
        elif (tensor.datatype and tensor.datatype != spec.datatype) or not _alike(tensor.shape, spec.shape):
            says = f"{tensor.datatype} {show_shape(tensor.shape)}".strip()
            yield f"{file} says that {what} {tensor.name} is {says}, the file {spec.datatype} {show_shape(spec.shape)}"


def _alike(declared: tuple[int | None, ...], there: tuple[int | str | None, ...]) -> bool:
    """A free dimension goes together with any size."""
    return len(declared) == len(there) and all(
        one is None or not isinstance(other, int) or one == other for one, other in zip(declared, there, strict=True)
    )
