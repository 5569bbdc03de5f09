"""Keep the JVM off the screen, for our own commands: what it writes goes to a file instead."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def jvm_output_to(file: Path) -> Iterator[None]:
    """A JVM started inside inherits ``file`` as its standard output and error, and keeps it for its life.

    A logging configuration alone cannot do this: the JVM, its launcher script and Ivy write before logging starts.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    saved = [os.dup(1), os.dup(2)]
    target = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(target, 1)
        os.dup2(target, 2)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, copy in zip((1, 2), saved, strict=True):
            os.dup2(copy, number)
            os.close(copy)
        os.close(target)
