"""Forebay's Python client: streams training batches from columnar storage over Arrow Flight.

>>> import forebay as fb
>>> plan = fb.Plan(outputs={"dense": fb.cols("dep_delay", "distance").fill_null("mean").standardize()})
>>> with fb.connect("grpc://127.0.0.1:8815") as client:
...     for batch in client.stream("flights", plan, batch_size=4096):
...         batch["dense"]  # NumPy, [rows, 2], over the received memory

For tensors use `forebay.torch`; no other public module imports torch.
"""

from ._client.client import Client, connect
from ._client.comparison import compare
from ._client.credentials import Credentials
from ._client.cursor import Cursor
from ._client.exchange import Exchange
from ._client.groups import Group
from ._client.map_batches import map_batches
from ._client.mixture import Mixture, mix
from ._client.options import StreamOptions
from ._client.private_server import local
from ._client.ragged import Ragged
from ._client.stream import Batch, Stream
from ._client.version import package_version
from ._dataset.array_dataset import ArrayDataset
from ._plan.chains import cols
from ._plan.columns import Columns
from ._plan.fitted import FittedPlan
from ._plan.joins import join
from ._plan.outputs import Output, label, output
from ._plan.pack import Pack
from ._plan.plan import Plan
from ._plan.translation.mllib import from_mllib
from ._plan.translation.nvtabular import from_nvtabular
from ._plan.translation.sklearn import from_sklearn
from .errors import (
    BrokenStream,
    CursorRefused,
    FailedPrecondition,
    ForebayError,
    InvalidRequest,
    NotFitted,
    NotFound,
    ResourceExhausted,
    SchemaDrift,
    SnapshotChanged,
    Unavailable,
    UnevenRanks,
)

__version__ = package_version()

__all__ = [
    "ArrayDataset",
    "Batch",
    "BrokenStream",
    "Client",
    "Columns",
    "Credentials",
    "Cursor",
    "CursorRefused",
    "Exchange",
    "FailedPrecondition",
    "FittedPlan",
    "ForebayError",
    "Group",
    "InvalidRequest",
    "Mixture",
    "NotFitted",
    "NotFound",
    "Output",
    "Pack",
    "Plan",
    "Ragged",
    "ResourceExhausted",
    "SchemaDrift",
    "SnapshotChanged",
    "Stream",
    "StreamOptions",
    "Unavailable",
    "UnevenRanks",
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
