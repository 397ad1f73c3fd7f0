"""Product keys against a scan of everything: exact float64 inner products, ties by slot number."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byheart.errors import FactError, KernelError
from byheart.interfaces import Floats, Integers
from byheart.memory.codebooks import Codebooks, Grid, fit_codebooks, whole_numbers
from byheart.memory.product_keys import CELL_SLOTS, SEEN, ProductKeys

WIDTH = 16
Found = tuple[Integers, Floats]


def unit(rows: npt.NDArray[np.floating]) -> Floats:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def random_keys(n: int, seed: int, width: int = WIDTH) -> Floats:
    return unit(np.random.default_rng(seed).standard_normal((n, width)))


def wordings(n: int, seed: int, width: int = 64) -> Floats:
    """Return keys as real ones lie: few topics, many facts, several wordings of each, one after the other."""
    rng = np.random.default_rng(seed)
    scale = np.arange(1, width + 1) ** -0.4

    def near(centres: Floats, share: float) -> Floats:
        return unit(share * centres + (1 - share**2) ** 0.5 * unit(rng.standard_normal(centres.shape) * scale))

    topics = unit(rng.standard_normal((40, width)) * scale)
    return near(np.repeat(near(topics[rng.integers(0, 40, -(-n // 5))], 0.7), 5, axis=0)[:n], 0.85)


def brute_force(held: dict[int, Floats], queries: Floats, k: int) -> list[Found]:
    numbers = np.array(sorted(held), np.int64)
    keys = np.array([held[number] for number in numbers], np.float64).reshape(len(numbers), queries.shape[1])
    found = []
    for query in queries.astype(np.float64):
        scores = np.add.reduce(keys * query, axis=1).astype(np.float32)
        order = np.lexsort((numbers, -scores))[:k]
        found.append((numbers[order], scores[order]))
    return found


def recall(index: ProductKeys, keys: Floats, queries: Floats, k: int = 8) -> float:
    """Return the share of the true `k` nearest that are found; the keys' slots are 0, 1, 2, …"""
    products = queries.astype(np.float64) @ keys.astype(np.float64).T
    true = np.argpartition(-products, k, axis=1)[:, :k]
    found = [numbers for numbers, _ in index.search(queries, k)]
    return float(np.mean([np.isin(numbers, row).sum() / k for numbers, row in zip(found, true, strict=True)]))


def assert_same(one: Sequence[Found], other: Sequence[Found]) -> None:
    assert len(one) == len(other)
    for (numbers, scores), (other_numbers, other_scores) in zip(one, other, strict=True):
        assert numbers.tolist() == other_numbers.tolist()
        assert scores.tobytes() == other_scores.tobytes()
        assert numbers.dtype == np.int64
        assert scores.dtype == np.float32


def filled(codebooks: Codebooks, keys: Floats, **bounds: int) -> ProductKeys:
    index = ProductKeys(codebooks, **bounds)
    index.insert(np.arange(len(keys)), keys)
    return index


@pytest.fixture(scope="module")
def small() -> Codebooks:
    return fit_codebooks(random_keys(400, 1), 8, 0)


@pytest.fixture(scope="module")
def books() -> Codebooks:
    return fit_codebooks(wordings(8_000, 2), 128, 0)


@pytest.fixture(scope="module")
def large(books: Codebooks) -> tuple[ProductKeys, Floats]:
    keys = wordings(20_000, 3)
    return filled(books, keys), keys


def noisy(keys: Floats, n: int, seed: int) -> Floats:
    """Return queries whose cosine with one of the keys is about 0.8."""
    rng = np.random.default_rng(seed)
    return unit(keys[rng.choice(len(keys), n)] + 0.75 * random_keys(n, seed, keys.shape[1]))


coarse_key = st.lists(st.integers(-2, 2), min_size=4, max_size=4)
coarse_keys = st.lists(coarse_key, max_size=40)


@settings(max_examples=60, deadline=None)
@given(
    rows=coarse_keys,
    query=st.lists(st.integers(-3, 3), min_size=4, max_size=4),
    k=st.integers(1, 50),
    seed=st.integers(0, 9),
)
def test_a_small_memory_answers_as_a_scan_does_ties_and_zero_vectors_included(
    rows: list[list[int]], query: list[int], k: int, seed: int
) -> None:
    codebooks = fit_codebooks(random_keys(30, 4, 4), 4, 0)
    keys = np.array(rows, np.float32).reshape(-1, 4)
    slots = np.random.default_rng(seed).permutation(100)[: len(keys)]
    index = ProductKeys(codebooks)
    index.insert(slots, keys)
    queries = np.array([query], np.float32)
    assert_same(index.search(queries, k), brute_force(dict(zip(slots.tolist(), keys, strict=True)), queries, k))


@settings(max_examples=40, deadline=None)
@given(steps=st.lists(st.tuples(st.booleans(), st.integers(0, 30)), max_size=60))
def test_inserting_and_deleting_in_any_order_leaves_what_a_fresh_memory_holds(steps: list[tuple[bool, int]]) -> None:
    codebooks, keys = fit_codebooks(random_keys(50, 5, 4), 4, 0), random_keys(31, 6, 4)
    index, held = ProductKeys(codebooks), dict[int, Floats]()
    for is_insert, slot in steps:
        if is_insert == (slot not in held):
            if is_insert:
                index.insert([slot], keys[slot : slot + 1])
                held[slot] = keys[slot]
            else:
                index.delete([slot])
                del held[slot]
    fresh = ProductKeys(codebooks)
    fresh.insert(list(held), np.array(list(held.values()), np.float32).reshape(-1, 4))
    assert index.slots().tolist() == sorted(held)
    assert len(index) == len(fresh) == len(held)
    assert index.cells_used == fresh.cells_used
    assert_same(index.search(keys, 5), fresh.search(keys, 5))
    assert_same(index.search(keys, 5), brute_force(held, keys, 5))


def test_a_memory_that_was_churned_reads_as_a_fresh_one_through_every_step(books: Codebooks) -> None:
    keys, rng = wordings(9_000, 7), np.random.default_rng(8)
    index = ProductKeys(books)
    for part in np.array_split(rng.permutation(9_000), 13):
        index.insert(part, keys[part])
        index.delete(part[::4])
    again = rng.permutation(9_000)[:1_500]
    absent = again[~np.isin(again, index.slots())]
    index.insert(absent, keys[absent])
    held = index.slots()
    fresh = ProductKeys(books)
    fresh.insert(held[::-1], keys[held[::-1]])
    queries = noisy(keys, 50, 9)
    assert len(held) > 6_000  # more than the short list, so that codes decide
    assert_same(index.search(queries, 20), fresh.search(queries, 20))


def test_a_query_finds_the_same_alone_and_in_a_batch_whatever_is_beside_it(large: tuple[ProductKeys, Floats]) -> None:
    index, keys = large
    queries = noisy(keys, 30, 10)
    together = index.search(queries, 8)
    assert_same([index.search(query[None], 8)[0] for query in queries], together)
    order = np.random.default_rng(11).permutation(30)
    assert_same(index.search(np.vstack([queries[order], 100 * queries]), 8)[:30], [together[i] for i in order])


def test_a_key_gets_the_same_place_alone_and_in_a_batch(books: Codebooks) -> None:
    keys = wordings(6_000, 12)
    bulk, single = filled(books, keys), ProductKeys(books)
    for first in range(0, 6_000, 7):
        single.insert(np.arange(first, min(first + 7, 6_000)), keys[first : first + 7])
    queries = noisy(keys, 40, 13)
    assert_same(bulk.search(queries, 8), single.search(queries, 8))


def test_of_more_equal_keys_than_the_lists_hold_the_lowest_slots_come_first(books: Codebooks) -> None:
    keys = np.vstack([np.tile(wordings(1, 41), (7_000, 1)), wordings(2_000, 42)])
    slots = np.random.default_rng(43).permutation(9_000)
    index = ProductKeys(books, cell_slots=8_000)
    index.insert(slots, keys)
    assert index.search(keys[:1], 20)[0][0].tolist() == sorted(slots[:7_000].tolist())[:20]


def test_scores_are_exact_inner_products(large: tuple[ProductKeys, Floats]) -> None:
    index, keys = large
    for query, (numbers, scores) in zip(q := noisy(keys, 20, 14), index.search(q, 30), strict=True):
        exact = np.add.reduce(keys[numbers].astype(np.float64) * query.astype(np.float64), axis=1).astype(np.float32)
        assert scores.tobytes() == exact.tobytes()
        assert (np.diff(scores) <= 0).all()


def test_recall_at_8_is_99_percent_at_20_000_keys(large: tuple[ProductKeys, Floats]) -> None:
    index, keys = large
    assert recall(index, keys, noisy(keys, 300, 15)) >= 0.99


def test_keys_that_all_want_one_cell_are_still_found() -> None:
    keys = wordings(20_000, 16)
    index = filled(fit_codebooks(keys, 1, 0), keys)
    assert index.cells_used == index.cells_full == 1
    assert index.overflow == 20_000 - CELL_SLOTS
    assert recall(index, keys, noisy(keys, 200, 17)) >= 0.99


def test_what_a_full_cell_does_not_take_goes_to_the_overflow_list_and_is_found(small: Codebooks) -> None:
    keys = random_keys(300, 18)
    index = filled(small, keys, cell_slots=3)
    cells = np.bincount(Grid(small).nearest_cells(whole_numbers(keys)))
    assert index.overflow == np.maximum(cells - 3, 0).sum() > 50
    assert index.cells_full == (cells >= 3).sum()
    assert_same(index.search(keys, 9), brute_force(dict(enumerate(keys)), keys, 9))
    index.delete(np.arange(0, 300, 2))
    assert_same(index.search(keys, 9), brute_force({slot: keys[slot] for slot in range(1, 300, 2)}, keys, 9))


def test_more_keys_of_one_kind_than_a_read_can_scan_are_refused_and_none_is_stored(small: Codebooks) -> None:
    index, n = ProductKeys(small, cell_slots=1), SEEN // 2 + 2
    with pytest.raises(KernelError, match=r"cells full \(1 slots each\).*raise memory.cell_slots"):
        index.insert(np.arange(n), np.tile(random_keys(1, 21), (n, 1)))
    assert len(index) == index.cells_used == index.overflow == 0


def test_a_read_visits_no_more_cells_than_it_may(small: Codebooks) -> None:
    keys = random_keys(500, 22)
    index = filled(small, keys, cells=1, cell_slots=512)
    numbers, _ = index.search(keys[:1], 500)[0]
    cells = Grid(small).nearest_cells(whole_numbers(keys))
    assert sorted(numbers.tolist()) == np.flatnonzero(cells == cells[0]).tolist()


@pytest.mark.parametrize("n", [0, 1, 2])
def test_a_memory_of_hardly_anything_gives_what_it_has(small: Codebooks, n: int) -> None:
    keys = random_keys(2, 23)
    index = filled(small, keys[:n])
    assert_same(index.search(keys, 5), brute_force(dict(enumerate(keys[:n])), keys, 5))
    assert index.search(keys[:0], 5) == []


@pytest.mark.parametrize("k", [0, -1])
def test_asking_for_no_slot_is_an_error(small: Codebooks, k: int) -> None:
    with pytest.raises(KernelError, match=f"k must be at least 1, got {k}"):
        filled(small, random_keys(3, 24)).search(random_keys(1, 25), k)


@pytest.mark.parametrize(
    ("slots", "keys", "message"),
    [
        ([9, 3], random_keys(2, 26), "slot 3 is there already"),
        ([8, 9, 8], random_keys(3, 26), "slot 8 is given twice"),
        ([-1], random_keys(1, 26), "slots are from 0"),
        ([2**40], random_keys(1, 26), "slots are from 0"),
        ([1.5], random_keys(1, 26), "whole numbers"),
        ([8, 9], random_keys(1, 26), "one key per slot"),
        ([8], random_keys(1, 26, 5), "keys must have shape batch 16"),
        ([8, 9], np.full((2, WIDTH), np.nan, np.float32), "row 0 of the keys holds NaN"),
        ([8], np.full((1, WIDTH), np.inf, np.float32), "row 0 of the keys holds NaN or infinity"),
    ],
)
def test_a_wrong_insert_is_refused_whole(small: Codebooks, slots: list[int], keys: Floats, message: str) -> None:
    index, held = filled(small, random_keys(5, 27)), random_keys(5, 27)
    with pytest.raises((FactError, KernelError), match=message):
        index.insert(slots, keys)
    assert_same(index.search(held, 9), brute_force(dict(enumerate(held)), held, 9))


@pytest.mark.parametrize(("slots", "message"), [([1, 7], "slot 7 is not in"), ([1, 1], "slot 1 is given twice")])
def test_a_wrong_delete_is_refused_whole(small: Codebooks, slots: list[int], message: str) -> None:
    index = filled(small, random_keys(5, 28))
    with pytest.raises(FactError, match=message):
        index.delete(slots)
    assert index.slots().tolist() == [0, 1, 2, 3, 4]


def test_a_deleted_slot_is_gone_for_every_call(small: Codebooks) -> None:
    index = filled(small, random_keys(3, 29))
    index.delete([1])
    for call in (index.delete, index.keys_of):
        with pytest.raises(FactError, match="slot 1 is not in the memory"):
            call([1])


@pytest.mark.parametrize(
    "queries", [np.full((1, WIDTH), np.nan, np.float32), random_keys(1, 30, 5), random_keys(1, 30)[0]]
)
def test_a_wrong_query_is_an_error(small: Codebooks, queries: Floats) -> None:
    with pytest.raises(KernelError, match=r"quer"):
        filled(small, random_keys(3, 31)).search(queries, 1)


def test_deleted_keys_are_overwritten(small: Codebooks) -> None:
    keys = random_keys(300, 32)
    index = filled(small, keys, cell_slots=8)
    index.delete(np.arange(100))
    memory = index._keys.tobytes()
    assert not any(key.tobytes() in memory for key in keys[:100])
    assert all(key.tobytes() in memory for key in keys[100:])
    cells = index._cells
    assert sorted(cells.slots[cells.slots >= 0].tolist()) == list(range(100, 300))
    assert not cells.codes[:, cells.slots < 0].any()


def test_two_memories_with_one_codebook_never_meet(small: Codebooks) -> None:
    keys = random_keys(8, 33)
    one, other = filled(small, keys), filled(small, keys)
    one.delete([0, 1, 2])
    one.insert([2], -keys[2:3])
    assert_same(other.search(keys, 8), brute_force(dict(enumerate(keys)), keys, 8))


def test_what_is_given_out_or_taken_in_is_a_copy(small: Codebooks) -> None:
    given, keys = random_keys(4, 34), random_keys(4, 34)
    index = filled(small, given)
    given[:] = 0
    index.keys_of([0])[:] = 0
    assert index.keys_of([3, 0]).tobytes() == keys[[3, 0]].tobytes()


def test_writing_and_erasing_one_slot_cost_the_same_in_a_memory_100_times_as_large(small: Codebooks) -> None:
    few, many = (filled(small, random_keys(n, 35), cell_slots=4_096) for n in (1_000, 100_000))
    keys = random_keys(200, 36)
    seconds = [(write_and_erase(few, key), write_and_erase(many, key)) for key in keys]
    of_few, of_many = (statistics.median(column) for column in zip(*seconds, strict=True))
    assert of_many < 10 * of_few


def write_and_erase(index: ProductKeys, key: Floats) -> float:
    started = time.perf_counter()
    index.insert([200_000], key[None])
    index.delete([200_000])
    return time.perf_counter() - started


def test_the_nearest_cell_is_that_of_the_whole_grid(small: Codebooks) -> None:
    keys = random_keys(200, 37)
    centres = np.hstack([np.repeat(small.first, 8, axis=0), np.tile(small.second, (8, 1))])
    distances = np.linalg.norm(keys[:, None] - centres, axis=2)
    found = Grid(small).nearest_cells(whole_numbers(keys))
    assert (distances[np.arange(200), found] <= distances.min(axis=1) + 0.001).all()


def test_fitting_is_repeatable_and_leaves_no_sub_key_idle() -> None:
    keys = random_keys(2_000, 38)
    one, other = fit_codebooks(keys, 16, 5), fit_codebooks(keys, 16, 5)
    assert one.first.tobytes() == other.first.tobytes()
    assert one.second.tobytes() == other.second.tobytes()
    rows, columns = np.divmod(Grid(one).nearest_cells(whole_numbers(keys)), 16)
    assert min(np.bincount(half, minlength=16).min() for half in (rows, columns)) > 2_000 / 16 / 8


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (np.zeros((4, 2)), np.zeros((3, 2)), "one shape"),
        (np.zeros((0, 2)), np.zeros((0, 2)), "one shape"),
        (np.full((4, 2), np.nan), np.zeros((4, 2)), "finite"),
        (np.zeros((4, 2)), np.full((4, 2), 3.0), "at most 2 long"),
    ],
)
def test_impossible_codebooks_are_refused(first: Floats, second: Floats, message: str) -> None:
    with pytest.raises(KernelError, match=message):
        Codebooks(first, second)


@pytest.mark.parametrize(
    ("keys", "sub_keys"),
    [
        (random_keys(3, 39), 4),
        (random_keys(9, 39, 5), 4),
        (np.full((9, 4), np.nan, np.float32), 4),
        (random_keys(9, 39), 0),
    ],
)
def test_codebooks_need_enough_whole_keys_of_even_width(keys: Floats, sub_keys: int) -> None:
    with pytest.raises(KernelError, match=r"codebooks"):
        fit_codebooks(keys, sub_keys, 0)


@pytest.mark.parametrize("bounds", [{"cells": 0}, {"cell_slots": 0}, {"cell_slots": SEEN}])
def test_impossible_bounds_are_refused(small: Codebooks, bounds: dict[str, int]) -> None:
    with pytest.raises(KernelError, match="cell_slots must be from 1"):
        ProductKeys(small, **bounds)
