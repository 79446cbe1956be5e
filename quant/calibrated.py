"""How a model was calibrated, as manifests, files of statistics and interrupted runs keep it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from quant.json_data import JsonData, JsonRow


@dataclass(frozen=True, slots=True, kw_only=True)
class TextCalibration(JsonRow):
    """By windows of a text: enough to make the same windows again, and to see that they are the same.

    samples   windows; at most `asked_samples`, fewer if the text is short
    seq_len   tokens per window
    sha256    of the windows' token ids
    """

    json_keys: ClassVar[Mapping[str, str]] = {"seq_len": "length"}  # the word of manifests
    json_omits = ("text_sha256",)

    text: str
    asked_samples: int
    seed: int
    text_sha256: str | None = None
    samples: int
    seq_len: int
    sha256: str
    on: str
    min_expert_tokens: int | None
    arithmetic: str = "fp32"  # all there was before it was recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class ImatrixCalibration(JsonRow):
    """By an importance matrix of llama.cpp. imatrix: path of the file"""

    imatrix: str
    sha256: str


Calibration = TextCalibration | ImatrixCalibration


@dataclass(frozen=True, slots=True)
class ExpertTokens(JsonData):
    """How many tokens each expert of a layer was calibrated on.

    extra    expert -> how many of them the model itself would not have routed to it
    """

    tokens: list[int]
    extra: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationKey(JsonData):
    """All that decides the bytes of a calibrated model, or of its statistics: equal keys, equal bytes.

    model    fingerprint of the source
    recipe   `QuantizationJob.description`; None if statistics do not depend on it
    code     hash of the code that quantizes; None in files of statistics
    """

    json_omits = ("recipe", "code")

    model: str
    recipe: str | None = None
    calibration: Calibration
    code: str | None = None

    def unlike(self, other: "CalibrationKey") -> list[str]:
        """The keys of the document that differ."""
        ours, theirs = self.to_json(), other.to_json()
        return [key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)]
