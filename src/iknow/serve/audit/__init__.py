"""The audit trail: what was answered, when, to whom, in a chain that shows any change."""

from iknow.serve.audit.inputs import decode_input, encode_input, encode_inputs, hash_input
from iknow.serve.audit.journal import Journal, Retention, open_journal
from iknow.serve.audit.records import Answer, Columns, Event, Label, Record, as_time, now
from iknow.serve.audit.verify import NotedHead, Verification, verify
from iknow.serve.audit.writer import AuditWriter, Call

__all__ = [
    "Answer", "AuditWriter", "Call", "Columns", "Event", "Journal", "Label", "NotedHead", "Record",
    "Retention", "Verification", "as_time", "decode_input", "encode_input", "encode_inputs",
    "hash_input", "now", "open_journal", "verify",
]  # fmt: skip
