"""The rank of the environment, and guards against sharding a dataset twice: a `FlightDataset` reads its rank's rows.

Accelerate shards an IterableDataset again. By default it reads on rank 0 only and distributes that rank's rows, so the
rows of the other ranks would be lost. torch's DistributedSampler is for datasets with an index; a DataLoader rejects
it for others, without the reason.
"""

from __future__ import annotations

import os
import sys

ACCELERATE = "accelerate.data_loader"
SHARDING = ("DataLoaderDispatcher", "IterableDatasetShard")
SAMPLER = "torch.utils.data.distributed"


def environment_rank() -> tuple[int, int]:
    """Return the rank and the world size of RANK and WORLD_SIZE; 0 of 1 without them.

    Raises ValueError if only one of them says that there are several ranks: all of them would read the same rows.
    """
    rank, world_size = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    try:
        numbers = int(rank or 0), int(world_size or 1)
    except ValueError:
        raise ValueError(f"RANK={rank!r} and WORLD_SIZE={world_size!r} must be whole numbers") from None
    if (not rank and numbers[1] > 1) or (not world_size and numbers[0] > 0):
        given, missing = (f"RANK={rank}", "WORLD_SIZE") if rank else (f"WORLD_SIZE={world_size}", "RANK")
        raise ValueError(
            f"{given} is set in the environment, and {missing} is not: set both, as torchrun does, or pass rank= and "
            "world_size="
        )
    return numbers


def refuse_sampler() -> None:
    """Raise TypeError if the caller of the caller is a DistributedSampler, which asks for the length of a dataset."""
    if sys._getframe(2).f_globals.get("__name__") == SAMPLER:  # pyright: ignore[reportPrivateUsage]
        raise TypeError(
            "a FlightDataset reads each rank's own rows, and takes no DistributedSampler: use "
            "DataLoader(data, batch_size=None) without one, and FlightDataset(…, shuffle=True) to shuffle"
        )


def refuse_second_sharding(world_size: int) -> None:
    """Raise RuntimeError if Accelerate is about to shard or distribute the stream of one of several ranks."""
    if world_size == 1 or ACCELERATE not in sys.modules:
        return
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        if frame.f_globals.get("__name__") == ACCELERATE and type(frame.f_locals.get("self")).__name__ in SHARDING:
            raise RuntimeError(
                "a FlightDataset reads each rank's own rows, and Accelerate would shard it again and lose rows: pass "
                "forebay.torch.FlightLoader(data) to accelerator.prepare instead of DataLoader(data, batch_size=None)"
            )
        frame = frame.f_back
