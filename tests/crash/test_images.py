"""CREATE, REFRESH, a checkpoint, clean-up and DROP, stopped at every point at which they could leave something half done."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from tests.crash.images import Image, World

pytestmark = pytest.mark.slow

ENOUGH = 25
#: points of each statement that CI checks; `make test-long` checks all
SAMPLE = 12
#: rows whose change files outweigh the checkpoint
MUCH = 600


@pytest.fixture
def world(spark, tmp_path) -> Iterator[World]:
    spark.sql("CREATE DATABASE crash")
    spark.sql("USE crash")
    made = World(spark, tmp_path)
    yield made
    made.drop()
    made.close()
    spark.sql("USE default")
    spark.sql("DROP DATABASE crash CASCADE")


@pytest.fixture(params=[pytest.param(SAMPLE, id="sample"), pytest.param(None, id="all", marks=pytest.mark.long)])
def go_on(world: World, request: pytest.FixtureRequest) -> Callable[[list[Image]], None]:
    """The driver that died had the entry in its memory: new ones give the statement that made the view again."""

    def check(images: list[Image]) -> None:
        assert len(images) >= ENOUGH
        world.drop()
        world.check(images if request.param is None else sorted_sample(images, request.param))

    return check


def sorted_sample(images: list[Image], size: int) -> list[Image]:
    """The same ones each time, in their order, the first and the last among them."""
    inner = random.Random(size).sample(range(1, len(images) - 1), size - 2)
    return [images[i] for i in (0, *sorted(inner), len(images) - 1)]


def test_create(world: World, go_on: Callable[[list[Image]], None]) -> None:
    with world.recording() as images:
        world.create()
    go_on(images)


def test_refresh(world: World, go_on: Callable[[list[Image]], None]) -> None:
    world.create()
    world.insert()
    with world.recording() as images:
        assert world.refresh().kind == "incremental"
    go_on(images)


def test_checkpoint(world: World, go_on: Callable[[list[Image]], None]) -> None:
    world.create()
    world.insert(MUCH)
    with world.recording() as images:
        assert world.refresh().kind == "incremental"
    assert len(list(images[-1].path.glob("*/*/b*/checkpoints/*/1-*"))) == 4
    go_on(images)


def test_clean_up(world: World, go_on: Callable[[list[Image]], None]) -> None:
    world.create()
    for _ in range(4):
        world.insert()
        world.refresh()
    world.refresh(full=True)  # stands for itself: nothing before it is needed
    with world.recording() as images:
        world.clean_up()
    go_on(images)


def test_drop(world: World, go_on: Callable[[list[Image]], None]) -> None:
    world.create()
    world.insert()
    world.refresh()
    with world.recording() as images:
        world.drop()
    go_on(images)
