"""Batching, with a model that can be held back."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from iknow.core.assertion import Assertions, Reasons
from iknow.errors import InputError
from iknow.serve.answers import RequestAnswers, Wanted
from iknow.serve.batching import Batcher
from iknow.serve.bodies import Rows
from iknow.serve.schema import Refusal


def said_of(rows: Rows) -> RequestAnswers:
    """Answers that tell which row they belong to."""
    values: Any = np.asarray(rows.values)
    codes = values[:, 0].astype(np.int64)
    zeros = np.zeros(len(codes), dtype=np.int8)
    watched = values[:, 0].astype(float)
    portraits = tuple({"row": i, "value": int(code)} for i, code in enumerate(codes))
    return RequestAnswers(
        classes=np.arange(100), belief=codes, score=watched, assertion=zeros.view(Assertions),
        reason=zeros.view(Reasons), justified=np.zeros((len(codes), 100), bool), level=None,
        weakest=None, probability=None, voices=(),
        watched=watched, watched_by_layer=watched[:, None],
        watched_layers=("x",), exemplars={"x": codes}, portraits=portraits,
    )  # fmt: skip


class Model:
    """Notes the batches that it is asked about, and waits until it is let go."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.open = asyncio.Event()

    async def assess(self, rows: Rows, wanted: Wanted) -> RequestAnswers:
        self.batches.append(len(rows))
        await self.open.wait()
        if np.any(np.asarray(rows.values) < 0):
            raise InputError("a number below 0")
        return said_of(rows)


def some(*numbers: int) -> Rows:
    return Rows(np.array([[number, 0] for number in numbers]))


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_what_arrives_together_is_assessed_together() -> None:
    async def run() -> None:
        model = Model()
        batcher = Batcher(model.assess, 100, 100)
        tasks = [asyncio.create_task(batcher.submit(some(i, 10 + i), Wanted())) for i in range(5)]
        await settle()
        assert batcher.waiting == 10
        model.open.set()
        for i, said in enumerate(await asyncio.gather(*tasks)):
            assert said.belief.tolist() == [i, 10 + i]
            assert said.exemplars["x"].tolist() == [i, 10 + i]
            assert [(each["row"], each["value"]) for each in said.portraits] == [
                (0, i),
                (1, 10 + i),
            ]
        assert model.batches == [2, 8]  # the first went at once, the others waited for it
        assert batcher.waiting == 0

    asyncio.run(run())


def test_the_queue_is_bounded_and_the_largest_request_fits() -> None:
    async def run() -> None:
        model = Model()
        batcher = Batcher(model.assess, 4, 100)
        first = asyncio.create_task(batcher.submit(some(1, 2, 3, 4), Wanted()))
        await settle()
        with pytest.raises(Refusal) as refused:
            await batcher.submit(some(5), Wanted())
        assert refused.value.status == 429
        assert refused.value.retry_after is not None
        model.open.set()
        assert len(await first) == 4
        assert len(await batcher.submit(some(5), Wanted())) == 1

    asyncio.run(run())


def test_a_bad_request_does_not_harm_those_it_was_joined_with() -> None:
    async def run() -> None:
        model = Model()
        batcher = Batcher(model.assess, 100, 100)
        rows = [some(1), some(2), some(-1), some(3)]
        tasks = [asyncio.create_task(batcher.submit(each, Wanted())) for each in rows]
        await settle()
        model.open.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(found[2], InputError)
        assert [each.belief.tolist() for each in (found[0], found[1], found[3])] == [[1], [2], [3]]

    asyncio.run(run())


def test_other_forms_and_other_wishes_wait_for_a_batch_of_their_own() -> None:
    async def run() -> None:
        model = Model()
        batcher = Batcher(model.assess, 100, 100)
        wide = Rows(np.array([[9, 0, 0]]))
        asked = [(some(0), Wanted()), (some(1), Wanted()), (wide, Wanted()),
                 (some(2), Wanted(scores=True)), (some(3), Wanted())]  # fmt: skip
        tasks = [asyncio.create_task(batcher.submit(*each)) for each in asked]
        await settle()
        model.open.set()
        found = await asyncio.gather(*tasks)
        assert [said.belief.tolist() for said in found] == [[0], [1], [9], [2], [3]]
        assert model.batches == [1, 2, 1, 1]

    asyncio.run(run())


def test_nobody_assesses_what_nobody_waits_for() -> None:
    async def run() -> None:
        model = Model()
        batcher = Batcher(model.assess, 100, 100)
        tasks = [asyncio.create_task(batcher.submit(some(i), Wanted())) for i in range(3)]
        await settle()
        tasks[1].cancel()
        await settle()
        model.open.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        await batcher.drain()
        assert model.batches == [1, 1]
        assert batcher.waiting == 0

    asyncio.run(run())


def test_several_batches_at_once_for_several_workers() -> None:
    async def run() -> None:
        model = Model()
        batcher = Batcher(model.assess, 100, 1, at_once=2)
        tasks = [asyncio.create_task(batcher.submit(some(i), Wanted())) for i in range(4)]
        await settle()
        assert len(model.batches) == 2
        model.open.set()
        await asyncio.gather(*tasks)
        assert len(model.batches) == 4

    asyncio.run(run())
