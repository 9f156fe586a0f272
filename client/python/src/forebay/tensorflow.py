"""TensorFlow datasets: `dataset` returns one rank's batches as a `tf.data.Dataset` whose position can be saved.

Only this module and `tensorflow_columns` import tensorflow; they import no torch.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ._client.arrays import Array
from ._client.cursor import Cursor
from ._client.header import BatchHeader
from ._client.mixture import Mixture
from ._client.options import RankKeywords, integer
from ._client.stream import Batch
from ._dataset.elements import Elements, Position, Progress
from ._dataset.epochs import Epochs
from ._dataset.framework import framework
from ._dataset.prefetch import Prefetch
from ._dataset.rank_epochs import RankEpochs, rank_streams
from ._dataset.tensorflow_columns import TensorFlowColumns
from ._dataset.tensorflow_exit import end_iterators, track
from ._plan.fitted import FittedPlan
from ._plan.plan import Plan
from .errors import CursorRefused

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["FlightData", "dataset"]

tf = framework("tensorflow", extra="tensorflow")
Dataset: Any = tf.data.Dataset
OwnedIterator: Any = framework("tensorflow.python.data.ops.iterator_ops", extra="tensorflow").OwnedIterator

atexit.register(end_iterators, OwnedIterator)

Numbered = tuple[BatchHeader, tuple[Array, ...]]
"""A batch's header, and its columns as NumPy arrays."""


def dataset(
    url: str | Sequence[str],
    name: str | Mixture,
    plan: Plan | FittedPlan | str,
    *,
    prefetch: int = 2,
    **options: Unpack[RankKeywords],
) -> FlightData:
    """Return one rank's batches of a dataset, or of a mixture, as a `FlightData`, which is a `tf.data.Dataset`.

    The batches, their order and the options are those of `forebay.torch.FlightDataset`; a thread reads `prefetch`
    batches ahead. Rank and world size default to RANK and WORLD_SIZE of the environment, else to 0 of 1. For
    ``strategy.distribute_datasets_from_function(function)`` pass ``rank=context.input_pipeline_id`` and
    ``world_size=context.num_input_pipelines``: the dataset shards itself, and turns `tf.data`'s sharding off.

    Fits the plan if necessary and reads the schema now, so the server's errors are raised here.
    """
    depth = integer("prefetch", prefetch, least=1)
    return FlightData(RankEpochs(rank_streams("dataset", url, name, plan, **options)), depth)


class FlightData(Dataset):
    """One rank's batches as a `tf.data.Dataset` of dicts of tensors; made by `dataset`.

    Each iterator over it is an epoch, or the rest of one after `load_state_dict`. A new iterator after a finished epoch
    is the next epoch, with a new order if shuffled; so is each repetition of ``repeat(n)``. One after an epoch that was
    left early starts the same epoch again. `set_epoch` chooses.

    Numbers are tensors of their dtype, matrices have a static width, lists are `tf.RaggedTensor` (with int64 row
    splits), text is `tf.string` and ``__row_id`` int64. The number of rows is static with remainder drop or pad.

    ``len(data)`` is the number of steps of a whole epoch. `tf.data` does not know it, as a resumed epoch has fewer, and
    Keras takes the number of the first epoch for the following ones: resume with a ``fit`` per epoch, ``fit(…,
    initial_epoch=epoch, epochs=epoch + 1)``.

    **Position.** In ``for batch in data``, and where Keras iterates over the dataset itself, `tf.data` reads no batch
    ahead, and `state_dict` is the position after the last batch that the loop has. A dataset derived from it
    (``data.map(f).prefetch(2)``) may hold batches that its loop does not have yet, which cannot be observed here:
    `state_dict` then requires the number of batches that the loop has. The states are those of
    `forebay.torch.FlightDataset`, and each loads the other's.

    **Errors.** A loop over the dataset itself raises the client's errors. Derived datasets and ``tf.function`` raise
    TensorFlow's, with the client's class and message in the text; `failure` is the client's error.
    """

    def __init__(self, epochs: RankEpochs, depth: int) -> None:
        self.failure: BaseException | None = None
        """The error that ended the latest iteration."""
        self._state = epochs
        self._depth = depth
        # The iterator whose `next` runs.
        self._caller: FlightIterator | None = None
        options = epochs.options
        rows = options.batch_size if options.has_whole_batches else None
        self._columns = TensorFlowColumns.of(epochs.schema, rows)
        self._source = self._elements(is_direct=False)
        self._direct = self._elements(is_direct=True)
        Dataset.__init__(self, self._source._variant_tensor)

    @property
    def element_spec(self) -> dict[str, Any]:
        """The types of a batch's tensors, by column name."""
        return self._columns.element_spec

    @property
    def epoch(self) -> int:
        """The epoch of the running loop; between loops, that of the next one."""
        return self._state.epoch

    @property
    def next_epoch(self) -> int:
        """The epoch of the next iteration; that of the running loop until it has finished it."""
        return self._state.next_epoch

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration, which starts at its first batch.

        Does nothing if that iteration is of this epoch anyway, so that a loaded state stays in effect.
        """
        self._state.set_epoch(epoch)

    def epochs(self, count: int, batches: Iterable[Any] | None = None) -> Epochs[Any]:
        """Iterate over the epochs that are left of `count` in all: pairs of an epoch's number and its batches.

        After `load_state_dict` the first one is the rest of the interrupted epoch. Leaving an inner loop early ends its
        epoch. `batches` is a dataset derived from this one that yields the batches instead.
        """
        return Epochs(self, count, self if batches is None else batches, lambda: self._state.generation)

    def state_dict(self, *, steps: int | None = None) -> dict[str, Any]:
        """Return the position after the last batch that the loop has: small, and the same on every rank.

        A loop over a derived dataset passes `steps`, the number of batches that it has of the current epoch, counted
        from the first one after a `load_state_dict`. At the end of an epoch the position is the start of the next one.
        """
        if steps is None and self._state.is_behind:
            raise RuntimeError(
                "the loop iterates over a dataset derived from this one, which may have read ahead of it: pass the "
                "number of batches that the loop has of this epoch, state_dict(steps=…), or iterate over this dataset"
            )
        return self._state.state_dict(steps=steps)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume at the next iteration, after the last batch that the saving loop had.

        Seed, shuffling, lanes and window are the state's; batch size and world size are this dataset's. Raises
        `forebay.CursorRefused`, a ValueError, for a state that does not fit. The first batch uses the state up: if the
        server does not respond, the next iteration starts at the same position.
        """
        cursor, remainder = Cursor.of(state), self._state.options.remainder
        if cursor.order.remainder != remainder:
            raise CursorRefused(
                f"the state was saved with remainder {cursor.order.remainder}, and this dataset's shapes are those of "
                f"remainder {remainder}: make the dataset with the state's"
            )
        self._state.load_state_dict(state)

    def __len__(self) -> int:
        """Return the exact number of steps of this rank in the whole epoch."""
        return self._state.info().rank_steps

    def __iter__(self) -> Any:
        """Return a `tf.data.Iterator` over the epoch; its first batch opens the stream."""
        return FlightIterator(self, self._direct) if tf.executing_eagerly() else Dataset.__iter__(self)

    def calls(self, iterator: FlightIterator | None) -> None:
        """Note the iterator whose `next` runs, which receives the position that it begins."""
        self._caller = iterator

    def _inputs(self) -> list[Any]:
        return [self._source]

    def _elements(self, *, is_direct: bool) -> Any:
        """Return the `tf.data.Dataset` that reads from this object."""
        begin = partial(self._begin, is_direct=is_direct)
        found = Dataset.from_generator(
            lambda: track(Elements(begin, self._fail)), output_signature=self._columns.component_specs
        ).map(self._columns.element)
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        if is_direct:
            # They would read ahead: a parallel map, and a prefetch at the end.
            options.autotune.enabled = False
            options.experimental_optimization.apply_default_optimizations = False
        return found.with_options(options)

    def _begin(self, *, is_direct: bool) -> tuple[Position, Prefetch[Numbered]]:
        """Open the stream of the next iteration, and read ahead."""
        self.failure = None
        position, stream = self._state.begin(is_direct=is_direct)
        if is_direct and self._caller is not None:
            self._caller.position = position
        return position, Prefetch(stream, partial(_taken, self._columns), depth=self._depth)

    def _fail(self, error: BaseException) -> None:
        self.failure = error


class FlightIterator(OwnedIterator):
    """The iterator of a `FlightData`: TensorFlow's own, but it raises the client's errors and survives interrupts."""

    def __init__(self, data: FlightData, direct: Any) -> None:
        OwnedIterator.__init__(self, direct)
        self._data = data
        self.position: Position | None = None
        """Its position; None before its first batch."""

    def __next__(self) -> Any:
        """Return the next batch."""
        return self.called(OwnedIterator.__next__)

    def get_next(self) -> Any:
        """Return the next batch; raise `tf.errors.OutOfRangeError` after the last one."""
        return self.called(OwnedIterator.get_next)

    def called(self, call: Callable[[FlightIterator], Any]) -> Any:
        """Return the next batch; if a signal handler raises, leave it to the following call."""
        before = Progress() if self.position is None else self.position.progress
        self._data.calls(self)
        try:
            return call(self)
        except (StopIteration, tf.errors.OutOfRangeError):
            raise
        except tf.errors.OpError as error:
            if self._data.failure is None:
                raise
            raise self._data.failure from error
        except BaseException:
            if self.position is not None and not self.position.progress.is_over:
                self.position.progress = before
            raise
        finally:
            self._data.calls(None)


def _taken(columns: TensorFlowColumns, batch: Batch) -> Numbered:
    """Return a batch's header and arrays."""
    return batch.header, columns.components(batch)
