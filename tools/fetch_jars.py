"""Fetch artifacts from the Maven repositories this machine is set up for: `fetch_jars.py DIRECTORY GROUP:ARTIFACT:VERSION…`.

Uses `mvn` where there is one, else the Ivy inside pyspark's own jars. Each artifact alone, without what it depends on.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path


def by_maven(directory: Path, coordinates: list[str]) -> None:
    for coordinate in coordinates:
        copy = ["dependency:copy", f"-Dartifact={coordinate}", f"-DoutputDirectory={directory}"]
        subprocess.run(["mvn", "-q", "-B", *copy], check=True, stdout=sys.stderr)


def by_ivy(directory: Path, coordinates: list[str]) -> None:
    """What `spark-submit --packages` runs, but not transitive and silent."""
    with tempfile.TemporaryDirectory() as work:
        from pyspark.java_gateway import launch_gateway

        with open(os.path.join(work, "log"), "wb") as log:
            gateway = launch_gateway(popen_kwargs={"stdout": log, "stderr": log})
        try:
            jvm = gateway.jvm
            silent = jvm.java.io.PrintStream(jvm.java.io.OutputStream.nullOutputStream())
            maven = getattr(jvm.org.apache.spark.util, "MavenUtils$")
            maven = getattr(maven, "MODULE$")
            none = jvm.scala.Option.empty()
            exclude = jvm.scala.jdk.javaapi.CollectionConverters.asScala([]).toSeq()
            for coordinate in coordinates:
                settings = maven.buildIvySettings(none, jvm.scala.Option.apply(os.path.join(work, "ivy")), True, silent)
                found = maven.resolveMavenCoordinates(coordinate, settings, none, False, exclude, False, silent)
                for jar in jvm.scala.jdk.javaapi.CollectionConverters.asJava(found):
                    _, artifact, version = coordinate.split(":")
                    shutil.copy(jar, directory / f"{artifact}-{version}.jar")
        finally:
            gateway.shutdown()


def main(directory: Path, coordinates: list[str]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    missing = [c for c in coordinates if not (directory / "{1}-{2}.jar".format(*c.split(":"))).exists()]
    if not missing:
        return
    if shutil.which("mvn"):
        try:
            return by_maven(directory, missing)
        except subprocess.CalledProcessError:
            print("mvn could not fetch them; trying the Ivy in pyspark's jars", file=sys.stderr)
    by_ivy(directory, missing)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
