"""CREATE, REFRESH, a checkpoint, clean-up and DROP, stopped at every point at which they could leave something half done."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.crash.images import Image, World

pytestmark = pytest.mark.slow

ENOUGH = 25
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


def go_on(world: World, images: list[Image]) -> None:
    """The driver that died had the entry in its memory: new ones give the statement that made the view again."""
    assert len(images) >= ENOUGH
    world.drop()
    world.check(images)


def test_create(world: World) -> None:
    with world.recording() as images:
        world.create()
    go_on(world, images)


def test_refresh(world: World) -> None:
    world.create()
    world.insert()
    with world.recording() as images:
        assert world.refresh().kind == "incremental"
    go_on(world, images)


def test_checkpoint(world: World) -> None:
    world.create()
    world.insert(MUCH)
    with world.recording() as images:
        assert world.refresh().kind == "incremental"
    assert len(list(images[-1].path.glob("*/*/b*/checkpoints/*/1-*"))) == 4
    go_on(world, images)


def test_clean_up(world: World) -> None:
    world.create()
    for _ in range(4):
        world.insert()
        world.refresh()
    world.refresh(full=True)  # stands for itself: nothing before it is needed
    with world.recording() as images:
        world.clean_up()
    go_on(world, images)


def test_drop(world: World) -> None:
    world.create()
    world.insert()
    world.refresh()
    with world.recording() as images:
        world.drop()
    go_on(world, images)
