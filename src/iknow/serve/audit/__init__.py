"""The audit trail: what was answered, when, to whom, in a chain that shows any change."""

from iknow.serve.audit.inputs import (
    decode_input,
    encode_input,
    encode_inputs,
    hash_encoded,
    hash_input,
)
from iknow.serve.audit.journal import Journal, open_journal
from iknow.serve.audit.record import Answer, Event, Label, Record, now
from iknow.serve.audit.recorder import Recorder
from iknow.serve.audit.retention import Retention
from iknow.serve.audit.verify import Verification, verify

__all__ = [
    "Answer", "Event", "Journal", "Label", "Record", "Recorder", "Retention", "Verification",
    "decode_input", "encode_input", "encode_inputs", "hash_encoded", "hash_input", "now",
    "open_journal", "verify",
]  # fmt: skip
