from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FromProvider(_message.Message):
    __slots__ = ("hello", "heartbeat", "answer", "refusal", "admitted", "awaiting_approval", "statement_reply")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    ADMITTED_FIELD_NUMBER: _ClassVar[int]
    AWAITING_APPROVAL_FIELD_NUMBER: _ClassVar[int]
    STATEMENT_REPLY_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    heartbeat: Heartbeat
    answer: AnswerFrame
    refusal: Refusal
    admitted: Admitted
    awaiting_approval: AwaitingApproval
    statement_reply: StatementReply
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., answer: _Optional[_Union[AnswerFrame, _Mapping]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ..., admitted: _Optional[_Union[Admitted, _Mapping]] = ..., awaiting_approval: _Optional[_Union[AwaitingApproval, _Mapping]] = ..., statement_reply: _Optional[_Union[StatementReply, _Mapping]] = ...) -> None: ...

class ToProvider(_message.Message):
    __slots__ = ("welcome", "heartbeat", "query", "frame", "farewell", "returned_receipts", "admit", "statement_request")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    FRAME_FIELD_NUMBER: _ClassVar[int]
    FAREWELL_FIELD_NUMBER: _ClassVar[int]
    RETURNED_RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    ADMIT_FIELD_NUMBER: _ClassVar[int]
    STATEMENT_REQUEST_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    heartbeat: Heartbeat
    query: Query
    frame: Frame
    farewell: Farewell
    returned_receipts: ReturnedReceipts
    admit: Admit
    statement_request: StatementRequest
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., query: _Optional[_Union[Query, _Mapping]] = ..., frame: _Optional[_Union[Frame, _Mapping]] = ..., farewell: _Optional[_Union[Farewell, _Mapping]] = ..., returned_receipts: _Optional[_Union[ReturnedReceipts, _Mapping]] = ..., admit: _Optional[_Union[Admit, _Mapping]] = ..., statement_request: _Optional[_Union[StatementRequest, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("software", "data_sets", "challenge", "open_jobs", "held")
    SOFTWARE_FIELD_NUMBER: _ClassVar[int]
    DATA_SETS_FIELD_NUMBER: _ClassVar[int]
    CHALLENGE_FIELD_NUMBER: _ClassVar[int]
    OPEN_JOBS_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    software: str
    data_sets: _containers.RepeatedCompositeFieldContainer[DataSet]
    challenge: bytes
    open_jobs: _containers.RepeatedScalarFieldContainer[str]
    held: _containers.RepeatedCompositeFieldContainer[HeldReceipt]
    def __init__(self, software: _Optional[str] = ..., data_sets: _Optional[_Iterable[_Union[DataSet, _Mapping]]] = ..., challenge: _Optional[bytes] = ..., open_jobs: _Optional[_Iterable[str]] = ..., held: _Optional[_Iterable[_Union[HeldReceipt, _Mapping]]] = ...) -> None: ...

class DataSet(_message.Message):
    __slots__ = ("name", "dimension", "columns", "dictionary", "dictionary_title", "sparse")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DIMENSION_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    DICTIONARY_FIELD_NUMBER: _ClassVar[int]
    DICTIONARY_TITLE_FIELD_NUMBER: _ClassVar[int]
    SPARSE_FIELD_NUMBER: _ClassVar[int]
    name: str
    dimension: int
    columns: _containers.RepeatedScalarFieldContainer[str]
    dictionary: str
    dictionary_title: str
    sparse: bool
    def __init__(self, name: _Optional[str] = ..., dimension: _Optional[int] = ..., columns: _Optional[_Iterable[str]] = ..., dictionary: _Optional[str] = ..., dictionary_title: _Optional[str] = ..., sparse: _Optional[bool] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("software", "heartbeat_seconds", "certificate", "proof", "receipt")
    SOFTWARE_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    software: str
    heartbeat_seconds: int
    certificate: bytes
    proof: bytes
    receipt: Receipt
    def __init__(self, software: _Optional[str] = ..., heartbeat_seconds: _Optional[int] = ..., certificate: _Optional[bytes] = ..., proof: _Optional[bytes] = ..., receipt: _Optional[_Union[Receipt, _Mapping]] = ...) -> None: ...

class Receipt(_message.Message):
    __slots__ = ("ledger", "entries", "hash", "certificate", "signature")
    LEDGER_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    ledger: str
    entries: int
    hash: str
    certificate: bytes
    signature: bytes
    def __init__(self, ledger: _Optional[str] = ..., entries: _Optional[int] = ..., hash: _Optional[str] = ..., certificate: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Admit(_message.Message):
    __slots__ = ("signed_job",)
    SIGNED_JOB_FIELD_NUMBER: _ClassVar[int]
    signed_job: bytes
    def __init__(self, signed_job: _Optional[bytes] = ...) -> None: ...

class Admitted(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: str
    def __init__(self, job: _Optional[str] = ...) -> None: ...

class AwaitingApproval(_message.Message):
    __slots__ = ("job", "since", "until")
    JOB_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    job: str
    since: float
    until: float
    def __init__(self, job: _Optional[str] = ..., since: _Optional[float] = ..., until: _Optional[float] = ...) -> None: ...

class Query(_message.Message):
    __slots__ = ("signed_job", "position", "kind", "dimension", "columns", "nonzero_rows", "centred", "threshold", "power", "content", "block", "blocks", "scaled")
    SIGNED_JOB_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    DIMENSION_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    NONZERO_ROWS_FIELD_NUMBER: _ClassVar[int]
    CENTRED_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    POWER_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    SCALED_FIELD_NUMBER: _ClassVar[int]
    signed_job: bytes
    position: int
    kind: str
    dimension: int
    columns: int
    nonzero_rows: int
    centred: bool
    threshold: float
    power: int
    content: bytes
    block: int
    blocks: int
    scaled: bool
    def __init__(self, signed_job: _Optional[bytes] = ..., position: _Optional[int] = ..., kind: _Optional[str] = ..., dimension: _Optional[int] = ..., columns: _Optional[int] = ..., nonzero_rows: _Optional[int] = ..., centred: _Optional[bool] = ..., threshold: _Optional[float] = ..., power: _Optional[int] = ..., content: _Optional[bytes] = ..., block: _Optional[int] = ..., blocks: _Optional[int] = ..., scaled: _Optional[bool] = ...) -> None: ...

class Frame(_message.Message):
    __slots__ = ("sequence", "content")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    content: bytes
    def __init__(self, sequence: _Optional[int] = ..., content: _Optional[bytes] = ...) -> None: ...

class AnswerFrame(_message.Message):
    __slots__ = ("job", "position", "sequence", "content", "receipt")
    JOB_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    job: str
    position: int
    sequence: int
    content: bytes
    receipt: Receipt
    def __init__(self, job: _Optional[str] = ..., position: _Optional[int] = ..., sequence: _Optional[int] = ..., content: _Optional[bytes] = ..., receipt: _Optional[_Union[Receipt, _Mapping]] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("job", "position", "code", "what", "remedy")
    JOB_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    REMEDY_FIELD_NUMBER: _ClassVar[int]
    job: str
    position: int
    code: str
    what: str
    remedy: str
    def __init__(self, job: _Optional[str] = ..., position: _Optional[int] = ..., code: _Optional[str] = ..., what: _Optional[str] = ..., remedy: _Optional[str] = ...) -> None: ...

class Farewell(_message.Message):
    __slots__ = ("job", "state", "receipts")
    JOB_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    job: str
    state: str
    receipts: _containers.RepeatedCompositeFieldContainer[HeldReceipt]
    def __init__(self, job: _Optional[str] = ..., state: _Optional[str] = ..., receipts: _Optional[_Iterable[_Union[HeldReceipt, _Mapping]]] = ...) -> None: ...

class HeldReceipt(_message.Message):
    __slots__ = ("provider", "receipt")
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    provider: str
    receipt: Receipt
    def __init__(self, provider: _Optional[str] = ..., receipt: _Optional[_Union[Receipt, _Mapping]] = ...) -> None: ...

class HeldReceipts(_message.Message):
    __slots__ = ("held",)
    HELD_FIELD_NUMBER: _ClassVar[int]
    held: _containers.RepeatedCompositeFieldContainer[HeldReceipt]
    def __init__(self, held: _Optional[_Iterable[_Union[HeldReceipt, _Mapping]]] = ...) -> None: ...

class ReturnedReceipts(_message.Message):
    __slots__ = ("receipts",)
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    receipts: _containers.RepeatedCompositeFieldContainer[Receipt]
    def __init__(self, receipts: _Optional[_Iterable[_Union[Receipt, _Mapping]]] = ...) -> None: ...

class SubmitRequest(_message.Message):
    __slots__ = ("signed_job",)
    SIGNED_JOB_FIELD_NUMBER: _ClassVar[int]
    signed_job: bytes
    def __init__(self, signed_job: _Optional[bytes] = ...) -> None: ...

class JobName(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: str
    def __init__(self, job: _Optional[str] = ...) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Job(_message.Message):
    __slots__ = ("job", "analyst", "data_set", "state", "reason", "answered", "queries", "step", "participants", "bytes_moved", "submitted", "ended", "signed_job")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ANALYST_FIELD_NUMBER: _ClassVar[int]
    DATA_SET_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_FIELD_NUMBER: _ClassVar[int]
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    PARTICIPANTS_FIELD_NUMBER: _ClassVar[int]
    BYTES_MOVED_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    SIGNED_JOB_FIELD_NUMBER: _ClassVar[int]
    job: str
    analyst: str
    data_set: str
    state: str
    reason: str
    answered: int
    queries: int
    step: str
    participants: _containers.RepeatedCompositeFieldContainer[Participant]
    bytes_moved: int
    submitted: float
    ended: float
    signed_job: bytes
    def __init__(self, job: _Optional[str] = ..., analyst: _Optional[str] = ..., data_set: _Optional[str] = ..., state: _Optional[str] = ..., reason: _Optional[str] = ..., answered: _Optional[int] = ..., queries: _Optional[int] = ..., step: _Optional[str] = ..., participants: _Optional[_Iterable[_Union[Participant, _Mapping]]] = ..., bytes_moved: _Optional[int] = ..., submitted: _Optional[float] = ..., ended: _Optional[float] = ..., signed_job: _Optional[bytes] = ...) -> None: ...

class Participant(_message.Message):
    __slots__ = ("name", "reason", "answered", "asked", "awaiting_approval_since", "awaiting_approval_until")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_FIELD_NUMBER: _ClassVar[int]
    ASKED_FIELD_NUMBER: _ClassVar[int]
    AWAITING_APPROVAL_SINCE_FIELD_NUMBER: _ClassVar[int]
    AWAITING_APPROVAL_UNTIL_FIELD_NUMBER: _ClassVar[int]
    name: str
    reason: str
    answered: int
    asked: int
    awaiting_approval_since: float
    awaiting_approval_until: float
    def __init__(self, name: _Optional[str] = ..., reason: _Optional[str] = ..., answered: _Optional[int] = ..., asked: _Optional[int] = ..., awaiting_approval_since: _Optional[float] = ..., awaiting_approval_until: _Optional[float] = ...) -> None: ...

class DataSetsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Offer(_message.Message):
    __slots__ = ("provider", "data_set")
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    DATA_SET_FIELD_NUMBER: _ClassVar[int]
    provider: str
    data_set: DataSet
    def __init__(self, provider: _Optional[str] = ..., data_set: _Optional[_Union[DataSet, _Mapping]] = ...) -> None: ...

class StatementsRequest(_message.Message):
    __slots__ = ("signed_request", "providers")
    SIGNED_REQUEST_FIELD_NUMBER: _ClassVar[int]
    PROVIDERS_FIELD_NUMBER: _ClassVar[int]
    signed_request: bytes
    providers: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, signed_request: _Optional[bytes] = ..., providers: _Optional[_Iterable[str]] = ...) -> None: ...

class Statement(_message.Message):
    __slots__ = ("provider", "signed_statement")
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    SIGNED_STATEMENT_FIELD_NUMBER: _ClassVar[int]
    provider: str
    signed_statement: bytes
    def __init__(self, provider: _Optional[str] = ..., signed_statement: _Optional[bytes] = ...) -> None: ...

class StatementRequest(_message.Message):
    __slots__ = ("signed_request",)
    SIGNED_REQUEST_FIELD_NUMBER: _ClassVar[int]
    signed_request: bytes
    def __init__(self, signed_request: _Optional[bytes] = ...) -> None: ...

class StatementReply(_message.Message):
    __slots__ = ("request", "signed_statement")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    SIGNED_STATEMENT_FIELD_NUMBER: _ClassVar[int]
    request: str
    signed_statement: bytes
    def __init__(self, request: _Optional[str] = ..., signed_statement: _Optional[bytes] = ...) -> None: ...

class PartiesRequest(_message.Message):
    __slots__ = ("providers",)
    PROVIDERS_FIELD_NUMBER: _ClassVar[int]
    providers: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, providers: _Optional[_Iterable[str]] = ...) -> None: ...

class Party(_message.Message):
    __slots__ = ("role", "name", "state", "since", "since_start", "data_sets", "certificate_until")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    SINCE_START_FIELD_NUMBER: _ClassVar[int]
    DATA_SETS_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_UNTIL_FIELD_NUMBER: _ClassVar[int]
    role: str
    name: str
    state: str
    since: float
    since_start: bool
    data_sets: _containers.RepeatedScalarFieldContainer[str]
    certificate_until: float
    def __init__(self, role: _Optional[str] = ..., name: _Optional[str] = ..., state: _Optional[str] = ..., since: _Optional[float] = ..., since_start: _Optional[bool] = ..., data_sets: _Optional[_Iterable[str]] = ..., certificate_until: _Optional[float] = ...) -> None: ...
