"""Every op of the plan format is in the table of cases, or names the file that tests it."""

from __future__ import annotations

import re

import pytest

import forebay as fb
from harness.ops.conformance import ELSEWHERE, OPS, Drawn
from harness.repository import ROOT

DRAWN = Drawn(low=1.0, high=2.0, whole=3, edges=[0.0], fill=0.0)


def ops_of_the_plan_format() -> set[str]:
    found = re.search(
        r"^message Op \{\n  oneof op \{\n(.*?)^  \}", (ROOT / "proto/forebay/v1/plan.proto").read_text(), re.M | re.S
    )
    assert found, "plan.proto has no message Op"
    return set(re.findall(r"^    \w+ (\w+) = \d+;", found[1], re.M))


def names_of(chain: fb.Columns) -> set[str]:
    return {op.name for op in chain.ops}


def calls(file: str, op: str) -> bool:
    """Whether the file, below server/tests, applies the op."""
    return f".{op}(" in (ROOT / "server/tests" / file).read_text()


def test_every_op_has_cases_or_a_file_that_tests_it():
    assert sorted([*OPS, *ELSEWHERE]) == sorted(ops_of_the_plan_format())


@pytest.mark.parametrize("op", ELSEWHERE)
def test_an_op_without_cases_is_tested_in_its_file(op: str):
    assert calls(ELSEWHERE[op], op)


@pytest.mark.parametrize("op", OPS)
def test_results_of_an_op_are_compared_with_a_reference(op: str):
    cases = OPS[op]
    tables = [cases.numbers, cases.integers, cases.indices, cases.lists]
    assert any(tables) != bool(cases.results), "name a file only if there is no case with an oracle"
    assert any(tables) or calls(cases.results, op)


@pytest.mark.parametrize("op", OPS)
def test_an_op_is_in_each_of_its_cases(op: str):
    cases, x = OPS[op], fb.cols("x")
    # The tests fill nulls after these.
    chains = {f"numbers: {name}": built(x).fill_null(0) for name, (built, _) in cases.numbers.items()}
    chains |= {f"integers: {name}": built(x).fill_null(0) for name, (built, _) in cases.integers.items()}
    for table in ("indices", "lists", "elements", "learning"):
        chains |= {f"{table}: {name}": case.op(x).fill_null(0) for name, case in getattr(cases, table).items()}
    chains |= {f"shuffled {i}": case.op(x) for i, case in enumerate(cases.shuffled)}
    if cases.step:
        chains["step"] = cases.step(DRAWN)[0](x)
    if cases.scaler:
        chains["scaler"] = cases.scaler.op(x)
    assert cases.shuffled, "test_shuffled.py does not have the op"
    assert [name for name, chain in chains.items() if op not in names_of(chain)] == []
