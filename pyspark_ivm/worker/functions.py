"""The functions Spark calls on Arrow batches, by reference: ``functools.partial(function, spec)`` (docs/contracts.md
C, D).

Nothing heavy is imported before a call: a worker is forked with this module loaded, and pyarrow does not like to be
forked.
"""

from __future__ import annotations

import functools
import gc
import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_ivm.strategies.yannakakis.layout import BlockLayout

_layouts: dict[str, BlockLayout] = {}
_LAYOUTS_KEPT = 256


@functools.lru_cache(maxsize=8)
def parse(spec: str) -> dict[str, Any]:
    """Every task of a job, and every read of the same version, brings the same text. Do not write to the answer."""
    parsed: dict[str, Any] = json.loads(spec)
    return parsed


@functools.cache
def _freeze_once() -> None:
    """Spark collects garbage after every task, and each time would walk through all that numba has loaded."""
    gc.collect()
    gc.freeze()


def layout_of(spec: dict[str, Any]) -> BlockLayout:
    """The spec's plan, compiled; once per worker and plan."""
    from pyspark_ivm.index import cache

    cache.warmup()
    from pyspark_ivm.plan.block import BlockPlan
    from pyspark_ivm.strategies.yannakakis.layout import BlockLayout

    _freeze_once()
    key = f"{spec['planHash']}/{spec['plan']['id']}"
    if key not in _layouts:
        if len(_layouts) >= _LAYOUTS_KEPT:
            _layouts.clear()
        _layouts[key] = BlockLayout(BlockPlan.from_json(spec["plan"]))
    return _layouts[key]


def maintain(spec: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Absorb one refresh's changes; see ``maintenance``."""
    parsed = parse(spec)
    layout = layout_of(parsed)
    from pyspark_ivm.worker import maintenance

    yield from maintenance.run(parsed, layout, batches)


def enumerate_block(spec: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The output of a block at a version, split by split; see ``reading``."""
    parsed = parse(spec)
    layout = layout_of(parsed)
    from pyspark_ivm.worker import reading

    yield from reading.run(parsed, layout, batches)


def merge_partials(spec: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Sum the partial groups of several partitions; see ``reading``."""
    parsed = parse(spec)
    layout = layout_of(parsed)
    from pyspark_ivm.worker import reading

    yield from reading.merge(parsed, layout, batches)
