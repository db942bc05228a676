"""How a model is called, and whether its requests may share a run: what its settings say, what its file declares, what a test has shown."""

from wakeful.batching.padding import Padder
from wakeful.config.settings import ModelSettings, Padding
from wakeful.models.file import ModelFile
from wakeful.models.signature import Validator, fixed_batch
from wakeful.runtime.messages import Signature, Verdict

UNKNOWN = Verdict(False, "not loaded yet, so not known", False)


class Interface:
    """Belongs to one state of the model's file: `forget` begins anew. Until `signature` is known, requests cannot be checked."""

    def __init__(self, settings: ModelSettings, file: ModelFile) -> None:
        self._settings = settings
        self._file = file
        self.signature: Signature | None = None
        self.verdict = UNKNOWN
        self.validate: Validator | None = None
        self.padder: Padder | None = None
        self.recall()

    @property
    def merges(self) -> bool:
        """Are requests merged along axis 0? Until the self-test has passed they are not."""
        return self.verdict.mergeable and self.verdict.tested

    @property
    def undecided(self) -> bool:
        """Only a self-test can tell whether requests may be merged."""
        return self.verdict.mergeable and not self.verdict.tested

    def recall(self) -> None:
        """Take over what was learnt of this file in earlier lives."""
        known = self._file.known()
        if known.signature is not None:
            self.learn(known.signature, known.verdict or UNKNOWN)

    def forget(self) -> None:
        """The file is another one."""
        self.signature, self.verdict, self.validate, self.padder = None, UNKNOWN, None, None
        self.recall()

    def learn(self, signature: Signature, verdict: Verdict) -> None:
        """A process has opened the file: `verdict` is what the declaration says, or what a test has shown."""
        verdict = self._decided(verdict)
        fixed = fixed_batch(signature) if verdict.mergeable else ""
        pad = self._padding(signature)
        if signature != self.signature:  # else what the padder has seen still holds
            self.padder = Padder(pad, signature) if pad else None
        self.signature, self.verdict = signature, Verdict(False, fixed, True) if fixed else verdict
        self.validate = Validator(signature, mergeable=self.merges, padder=self.padder)

    def _padding(self, signature: Signature) -> Padding | None:
        """Texts are filled up without being asked, if the model is told where they end."""
        text = self._settings.text
        if text is None or not {"input_ids", "attention_mask"} <= {spec.name for spec in signature.inputs}:
            return self._settings.batching.pad
        return text.padding()

    def _decided(self, verdict: Verdict) -> Verdict:
        """The settings' word goes first; an earlier test says more than a declaration."""
        merge = self._settings.batching.merge
        if merge == "off":
            return Verdict(False, 'batching = "off"', True)
        if merge == "on":
            return Verdict(True, f'batching = "on" (self-test skipped; declared: {verdict.reason})', True)
        known = self._file.known().verdict
        return known if verdict.mergeable and not verdict.tested and known is not None and known.tested else verdict
