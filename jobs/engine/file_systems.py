"""Whether Spark has the file systems of the URIs that a run is given: found out before anything is read.

Hadoop comes with Spark, but its clients of object stores do not: each is a package that the run has to be
given.
"""

import os
import re
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jobs.errors import UsageError
from jobs.location import SCHEME

# more packages for a Spark that the audit starts: Maven coordinates, separated by commas
PACKAGES = "KAFKA_AUDIT_PACKAGES"
# scheme -> the package that reads it; `{}` is the version of Hadoop that Spark has
OF_SCHEME = {
    "s3a": "org.apache.hadoop:hadoop-aws:{}",
    "abfs": "org.apache.hadoop:hadoop-azure:{}",
    "abfss": "org.apache.hadoop:hadoop-azure:{}",
    "gs": "com.google.cloud.bigdataoss:gcs-connector:VERSION",
}
# by any of these an installation may have the package, which only Spark can tell
_SETTINGS = (
    PACKAGES,
    "PYSPARK_SUBMIT_ARGS",
    "SPARK_HOME",
    "SPARK_CONF_DIR",
    "SPARK_DIST_CLASSPATH",
    "CLASSPATH",
)
_OF_HADOOP = ("file", "hdfs")
_MISSING = re.compile(r"ClassNotFoundException|No FileSystem for scheme|NoClassDefFoundError")


def packages(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the packages that a Spark which the audit starts is given besides Delta."""
    return [one.strip() for one in environment.get(PACKAGES, "").split(",") if one.strip()]


def require_before_start(uris: Iterable[str], environment: Mapping[str, str] = os.environ) -> None:
    """Raise UsageError where a Spark that this process starts is sure to lack the file system of a URI."""
    if any(environment.get(name) for name in _SETTINGS):
        return
    for uri in uris:
        package = OF_SCHEME.get(_scheme(uri), "").split(":")
        if len(package) > 1 and not any(_jars().glob(f"{package[1]}-*.jar")):
            raise UsageError(missing(uri))


def require(spark: Any, uris: Iterable[str]) -> None:
    """Raise UsageError where a session lacks the file system of a URI."""
    for uri in uris:
        if (scheme := _scheme(uri)) in ("", *_OF_HADOOP):
            continue
        try:
            # without a bucket nothing is asked of a network
            spark.read.text(f"{scheme}:///")
        except Exception as error:
            if _MISSING.search(str(error)):
                raise UsageError(missing(uri)) from None


def missing(uri: str) -> str:
    """Return what to do where Spark has no file system for a URI."""
    scheme = _scheme(uri)
    text = f"{uri}: Spark has no file system for {scheme}"
    if scheme not in OF_SCHEME:
        return f"{text}; give Spark the package that has it ({PACKAGES}, or spark-submit --packages), or use a mounted folder"
    package = OF_SCHEME[scheme].format(_hadoop_version())
    return (
        f"{text}: the package {package} is missing. Set {PACKAGES}={package}, or give it to spark-submit with --packages; "
        "or use a mounted folder"
    )


def _scheme(uri: str) -> str:
    return uri.partition(":")[0].lower() if SCHEME.match(uri) else ""


def _jars() -> Path:
    """Return the folder of Spark's own jars; it need not exist."""
    found = find_spec("pyspark")
    return Path(found.origin).parent / "jars" if found and found.origin else Path(os.devnull)


def _hadoop_version() -> str:
    found = (re.search(r"-(\d[\d.]*)\.jar$", path.name) for path in _jars().glob("hadoop-client-api-*.jar"))
    return next((match[1] for match in found if match), "VERSION")
