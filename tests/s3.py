"""An S3 endpoint on loopback (moto) in its own process, and the jars with which Spark reaches it, if they can
be fetched.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# Hadoop's S3A in the version of Spark 4.1, with the parts of the AWS SDK that it needs; the whole SDK has 600
# MB
HADOOP, SDK = "3.4.2", "2.29.52"
PACKAGES = [
    f"org.apache.hadoop:hadoop-aws:{HADOOP}",
    *(
        f"software.amazon.awssdk:{name}:{SDK}"
        for name in ("s3", "s3-transfer-manager", "sts", "apache-client")
    ),
]
# jars that are needed; Spark has its own versions of the others
NEEDED = ("hadoop-aws", "software.amazon", "reactive-streams", "httpclient", "httpcore", "wildfly")
FOLDER = Path(sys.prefix) / "share" / "kafka-audit" / "ivy-s3"


@dataclass(frozen=True)
class Endpoint:
    """A running endpoint. environment: variables with which delta-rs and boto3 reach it."""

    url: str
    bucket: str

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    @property
    def settings(self) -> dict[str, str]:
        """Return the settings with which Spark reaches it."""
        return {
            "spark.hadoop.fs.s3a.endpoint": self.url,
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.access.key": "test",
            "spark.hadoop.fs.s3a.secret.key": "test",
            "spark.hadoop.fs.s3a.path.style.access": "true",
        }


@contextmanager
def endpoint(bucket: str = "audit") -> Iterator[Endpoint]:
    """Run moto with one bucket."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = Endpoint(f"http://127.0.0.1:{port}", bucket)
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(
                    urllib.request.Request(f"{started.url}/{bucket}", method="PUT"), timeout=5
                ).close()
                break
            except OSError:
                if time.monotonic() > deadline or server.poll() is not None:
                    raise
                time.sleep(0.1)
        yield started
    finally:
        server.terminate()
        server.wait(20)


def jars() -> list[Path]:
    """Return the jars of Hadoop's S3A, fetched once into the environment; none if that fails."""

    def found() -> list[Path]:
        return sorted(path for path in FOLDER.glob("jars/*.jar") if any(part in path.name for part in NEEDED))

    if not found():
        import pyspark

        nothing = FOLDER / "nothing.py"
        nothing.parent.mkdir(parents=True, exist_ok=True)
        nothing.write_text("", "utf-8")
        command = [
            str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
            *("--master", "local[1]", "--packages", ",".join(PACKAGES)),
            *(
                "--exclude-packages",
                "software.amazon.awssdk:bundle",
                "--conf",
                f"spark.jars.ivy={FOLDER}",
                str(nothing),
            ),
        ]
        environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        subprocess.run(command, capture_output=True, env=environment, check=False)
    return found()
