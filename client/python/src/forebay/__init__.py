"""Forebay's Python client: streams training batches from columnar storage over Arrow Flight.

>>> import forebay as fb
>>> plan = fb.Plan(outputs={"dense": fb.cols("dep_delay", "distance").fill_null("mean").standardize()})
>>> with fb.connect("grpc://127.0.0.1:8815") as client:
...     for batch in client.stream("flights", plan, batch_size=4096):
...         batch["dense"]  # NumPy, [rows, 2], over the received memory

For tensors use `forebay.torch`; no other public module imports torch.
"""

from .array_dataset import ArrayDataset
from .chains import cols
from .client import Client, connect
from .columns import Columns
from .comparison import ColumnComparison, Comparison, ValueDifference, compare
from .credentials import Credentials
from .cursor import Cursor
from .description import ColumnDescription, DatasetDescription, LeftOutFiles
from .epoch_checks import EmptyEpoch, KeptRows, UnevenRanks
from .errors import (
    BrokenStream,
    Cancelled,
    CursorRefused,
    DataLoss,
    DeadlineExceeded,
    FailedPrecondition,
    ForebayError,
    ForkedInUse,
    IncompatibleVersion,
    InternalError,
    InvalidRequest,
    NotFitted,
    NotFound,
    OrderChanged,
    Overloaded,
    PermissionDenied,
    ResourceExhausted,
    SchemaDrift,
    ServerEnded,
    SnapshotChanged,
    StreamError,
    Unauthenticated,
    Unavailable,
    Unimplemented,
)
from .exchange import Exchange
from .explain import CacheExplain, Explain, LibraryColumn, RankExplain
from .fitted import FittedPlan
from .groups import Group
from .header import BatchHeader, DatasetInfo, SourceInfo, StreamInfo
from .joins import Join, join
from .map_batches import MappedBatches, map_batches
from .mixture import Mixture, MixtureSource, mix
from .options import StreamOptions
from .outputs import Output, label, output
from .pack import Pack
from .plan import Plan
from .plan_check import CheckedOutput, LearnedStatistic, PlanCheck
from .preview import Preview
from .private_server import local
from .progress import FitProgress
from .ragged import Ragged
from .replay import Replay
from .stored_plan import PlanDataset, StoredPlan
from .stream import Batch, Stream
from .table_stream import TableStream
from .translation import Translation, UntranslatableStage
from .translation.mllib import from_mllib
from .translation.nvtabular import from_nvtabular
from .translation.sklearn import from_sklearn
from .version import package_version

__version__ = package_version()

__all__ = [
    "ArrayDataset",
    "Batch",
    "BatchHeader",
    "BrokenStream",
    "CacheExplain",
    "Cancelled",
    "CheckedOutput",
    "Client",
    "ColumnComparison",
    "ColumnDescription",
    "Columns",
    "Comparison",
    "Credentials",
    "Cursor",
    "CursorRefused",
    "DataLoss",
    "DatasetDescription",
    "DatasetInfo",
    "DeadlineExceeded",
    "EmptyEpoch",
    "Exchange",
    "Explain",
    "FailedPrecondition",
    "FitProgress",
    "FittedPlan",
    "ForebayError",
    "ForkedInUse",
    "Group",
    "IncompatibleVersion",
    "InternalError",
    "InvalidRequest",
    "Join",
    "KeptRows",
    "LearnedStatistic",
    "LeftOutFiles",
    "LibraryColumn",
    "MappedBatches",
    "Mixture",
    "MixtureSource",
    "NotFitted",
    "NotFound",
    "OrderChanged",
    "Output",
    "Overloaded",
    "Pack",
    "PermissionDenied",
    "Plan",
    "PlanCheck",
    "PlanDataset",
    "Preview",
    "Ragged",
    "RankExplain",
    "Replay",
    "ResourceExhausted",
    "SchemaDrift",
    "ServerEnded",
    "SnapshotChanged",
    "SourceInfo",
    "StoredPlan",
    "Stream",
    "StreamError",
    "StreamInfo",
    "StreamOptions",
    "TableStream",
    "Translation",
    "Unauthenticated",
    "Unavailable",
    "UnevenRanks",
    "Unimplemented",
    "UntranslatableStage",
    "ValueDifference",
    "cols",
    "compare",
    "connect",
    "from_mllib",
    "from_nvtabular",
    "from_sklearn",
    "join",
    "label",
    "local",
    "map_batches",
    "mix",
    "output",
]
