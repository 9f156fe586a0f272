"""The permutations of the epoch order are unbiased bijections, and all versions are stable."""

from __future__ import annotations

import numpy as np
import pytest

from harness.epoch_order import Array, Epoch, passing_rows, permutation, permuted, window_ends
from harness.epoch_order import key as order_key
from harness.epochs import (
    SEED_MAX,
)


def chi_square(counts: Array) -> float:
    expected = counts.sum() / counts.size
    return float(((counts - expected) ** 2 / expected).sum())


def is_even(statistic: float, freedom: int) -> bool:
    """Whether a chi-square statistic is at most 5 of its deviations from its mean."""
    return abs(statistic - freedom) < 5 * np.sqrt(2 * freedom)


def places_are_even(orders: Array) -> bool:
    """Whether each row is at each position equally often; each array row is a permutation."""
    size = orders.shape[1]
    counts = np.stack([np.bincount(orders[:, position], minlength=size) for position in range(size)])
    # Sums of permutation matrices: rows and columns both add up, which shrinks the statistic.
    return is_even(chi_square(counts) * (size - 1) / size, (size - 1) ** 2)


def pairs_are_even(orders: Array, one: int, other: int) -> bool:
    """Whether two positions hold each of the pairs of different rows equally often."""
    size = orders.shape[1]
    pairs = np.bincount(orders[:, one] * size + orders[:, other], minlength=size * size).reshape(size, size)
    return is_even(chi_square(pairs[~np.eye(size, dtype=bool)]), size * (size - 1) - 1)


@pytest.mark.parametrize("size", range(2, 13))
def test_every_row_reaches_every_position_equally_often(size: int):
    trials = 20_000
    keys = np.array([order_key("w", seed, 0, 0, 0) for seed in range(trials)], np.uint64)[:, None]
    orders = permuted(np.arange(size)[None, :], np.uint64(size), keys).astype(np.int64)
    assert np.array_equal(np.sort(orders, axis=1), np.tile(np.arange(size), (trials, 1)))
    assert places_are_even(orders)
    if size > 2:
        for one, other in ((0, 1), (0, size - 1), (size // 2, size // 2 - 1)):
            assert pairs_are_even(orders, one, other), (one, other)


@pytest.mark.parametrize("varied", ["seed", "epoch"])
@pytest.mark.parametrize("groups", [[12], [1] * 12])
def test_neighbouring_seeds_and_epochs_are_independent(groups: list[int], varied: str):
    epoch = Epoch(passing_rows(groups), shuffle=True, lanes=1, batch_size=12)
    trials = 800
    orders = np.array([epoch.with_(**{varied: value}).prefix(12) for value in range(trials)])
    assert places_are_even(orders)
    # Two random permutations of 12 agree in one place on average, with a variance of one.
    agreements = (orders[1:] == orders[:-1]).sum(axis=1)
    assert abs(agreements.mean() - 1) < 5 / np.sqrt(trials)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 63, 64, 65, 1000, 4097])
def test_permutation_is_a_bijection(size: int):
    for seed in (0, 1, SEED_MAX):
        order = permutation(size, order_key("g", seed, SEED_MAX, 0, 0))
        assert np.array_equal(np.sort(order), np.arange(size))


def test_order_version_1_is_stable():
    """The order is a format: these numbers change only with order_version."""
    epoch = Epoch(passing_rows([5, 0, 7]), shuffle=True, lanes=2, window_rows=4, seed=7, epoch=1, version=1)
    assert (order_key("g", 0, 0, 0, 0, 1), order_key("w", 7, 1, 1, 0, 1)) == (13797753934698153160, 8521847197681994343)
    assert permutation(10, order_key("w", 7, 1, 0, 0, 1)).tolist() == [9, 7, 3, 0, 8, 2, 6, 5, 1, 4]
    assert permutation(1000, order_key("w", 7, 1, 0, 0, 1))[:8].tolist() == [938, 503, 253, 413, 627, 518, 33, 533]
    assert epoch.prefix(12) == [8, 1, 6, 2, 5, 0, 7, 11, 10, 3, 9, 4]


def test_order_version_2_is_stable():
    """The order is a format: these numbers change only with order_version."""
    epoch = Epoch(passing_rows([5, 0, 7]), shuffle=True, lanes=2, window_rows=4, seed=7, epoch=1, version=2)
    assert (order_key("g", 0, 0, 0, 0, 2), order_key("w", 7, 1, 1, 0, 2)) == (1800791619503143301, 18085231639075912436)
    assert window_ends(2, 4, 2, 0, 6) == [2, 4, 6]
    assert window_ends(2, 4, 2, 1, 12) == [3, 6, 10, 12]
    assert window_ends(2, 16_384, 16, 15, 50_000) == [992, 1984, 3968, 7936, 15_872, 31_744, 48_128, 50_000]
    assert epoch.prefix(12) == [5, 0, 6, 1, 7, 11, 8, 3, 9, 4, 10, 2]


def test_order_version_3_is_stable():
    """The order is a format: these numbers change only with order_version."""
    epoch = Epoch(passing_rows([5, 0, 7]), shuffle=True, lanes=2, window_rows=4, seed=7, epoch=1, version=3)
    keys = (order_key("g", 0, 0, 0, 0, 3), order_key("l", 7, 1, 0, 0, 3), order_key("b", 7, 1, 1, 0, 3))
    assert keys == (5023081235097299780, 1856316989531600773, 4746396757879427819)
    assert window_ends(3, 4, 2, 1, 12) == window_ends(2, 4, 2, 1, 12)
    assert epoch.prefix(12) == [5, 4, 10, 3, 7, 11, 6, 2, 9, 0, 8, 1]
    meeting = epoch.with_(passing=passing_rows([1] * 16))
    assert meeting.prefix(16) == [5, 3, 14, 1, 2, 11, 0, 6, 8, 7, 9, 4, 13, 10, 12, 15]
