"""Kafka's jars from Maven Central, by Maven itself, kept in the user's cache.

And which class of them is a tool.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>recorder</groupId><artifactId>recorder</artifactId><version>1</version><dependencies>
{}
</dependencies></project>
"""
DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
LOG4J2 = "2.25.4"
RELOAD4J = "1.7.36"
# earlier ones find no server on Java 14 and later (ZOOKEEPER-3779)
ZOOKEEPER = "3.5.9"


class RecorderError(Exception):
    """The recording cannot be made; the text says what to do."""


def numbers(version: str) -> tuple[int, ...]:
    """`4.3.0` -> (4, 3, 0). Raises RecorderError."""
    try:
        found = tuple(int(part) for part in version.split("."))
    except ValueError:
        found = ()
    if len(found) < 3:
        raise RecorderError(f"{version} is no Kafka version; say KAFKA=4.3.0")
    return found


def scala(version: str) -> str:
    """The Scala version of its jars: the newest that was published."""
    return "2.13" if numbers(version) >= (2, 4) else "2.12"


def dependencies(version: str) -> list[tuple[str, str, str]]:
    """Artifacts that make a broker and its tools; the logging backend is never among them."""
    found = [
        ("org.apache.kafka", f"kafka_{scala(version)}", version),
        ("org.apache.kafka", "kafka-tools", version),
    ]
    if numbers(version) >= (4,):
        return [
            *found,
            ("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J2),
            ("org.apache.logging.log4j", "log4j-core", LOG4J2),
        ]
    if numbers(version) < (2, 6):
        found.append(("org.apache.zookeeper", "zookeeper", ZOOKEEPER))
    return [*found, ("org.slf4j", "slf4j-reload4j", RELOAD4J)]


def fetch(version: str) -> Path:
    """The folder of the jars of a version; fetched once. Raises RecorderError."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "kafka-audit" / "kafka"
    folder = cache / version
    if (folder / ".complete").is_file():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pom.xml").write_text(
        POM.format("\n".join(DEPENDENCY.format(*one) for one in dependencies(version))), "utf-8"
    )
    command = [
        "mvn",
        "-q",
        "-B",
        "dependency:copy-dependencies",
        "-DincludeScope=runtime",
        f"-DoutputDirectory={folder}",
    ]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900, check=False)
    except FileNotFoundError:
        raise RecorderError("mvn is not installed; it fetches Kafka's jars from Maven Central") from None
    except subprocess.TimeoutExpired:
        raise RecorderError(f"Kafka {version} could not be fetched within 15 minutes; run it again") from None
    if done.returncode or not list(folder.glob(f"kafka_{scala(version)}-*.jar")):
        said = next(
            (line for line in done.stdout.splitlines() if line.startswith("[ERROR]")),
            "no such version on Maven Central?",
        )
        raise RecorderError(f"Kafka {version} could not be fetched: {said}")
    # reload4j takes the place of log4j 1, which old versions bring
    for jar in [*folder.glob("log4j-1.*.jar"), *folder.glob("slf4j-log4j12-*.jar")]:
        jar.unlink()
    (folder / ".complete").touch()
    return folder


def class_of(jars: Path, simple_name: str) -> str:
    """Full name of a tool: DumpLogSegments, say, has moved from kafka.tools to org.apache.kafka.tools.

    Raises RecorderError.
    """
    for jar in sorted(jars.glob("kafka*.jar")):
        with zipfile.ZipFile(jar) as content:
            for name in content.namelist():
                if name.endswith(f"/{simple_name}.class"):
                    return name.removesuffix(".class").replace("/", ".")
    raise RecorderError(f"None of the jars in {jars} has {simple_name}")


if __name__ == "__main__":
    try:
        fetch(sys.argv[1])
    except RecorderError as error:
        sys.exit(f"jars: {error}")
