"""Points at which a crash would leave something half done, for the tests of crashes: ``Faults`` of the shim, on the workers."""

from __future__ import annotations

import errno
import os
import subprocess

_HOOK = os.environ.get("PYSPARK_IVM_FAULTS")


def at(point: str) -> None:
    """Off unless the environment names an executable file; its failure is a full disk."""
    if _HOOK and os.access(_HOOK, os.X_OK) and subprocess.run([_HOOK, point]).returncode != 0:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), point)
