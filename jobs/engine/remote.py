"""Logs at URIs, on any file system that Spark knows: Spark lists and reads them.

A worker looks into each and parses it as a local file.

The text is fetched once, and Spark's workers keep it between the two steps. One task parses a whole file, of
any size.
"""

import pickle
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark import StorageLevel
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.config import Cluster
from jobs.engine.frames import by_workers
from jobs.files.archives import LIMITS, Limits
from jobs.files.ingest import MISSING, ROTATED, LogFile, Sniffer, ending, fetched
from jobs.location import SCHEME, spark_uri
from parsers.rules import RuleSet

# bytes; a packed file is one value, which Spark holds in memory three times
LONGEST_PACKED = 256 * 1024 * 1024
# bytes of text that one task reads, on average, of more than one file
SHARE = 8 * 1024 * 1024
# uri: percent-encoded; place: increases from piece to piece of a file; size: of the file
_PIECES = "uri STRING, size BIGINT, place BIGINT, data BINARY"
# suffixes of files that are read whole; Spark would unpack some of them itself
_PACKED = r"\.(gz|tgz|bz2|tbz2?|xz|txz|zst|lz4|zip|tar|7z|deflate|snappy)$"


@dataclass(frozen=True)
class Remote:
    """The logs of a cluster that are at URIs.

    pieces: uri STRING, size BIGINT, place BIGINT, data BINARY; those of a file stand together, in order.
    None: nothing is at its URIs.
    """

    cluster: str
    files: tuple[LogFile, ...]
    pieces: DataFrame | None


def find(spark: SparkSession, cluster: Cluster, ruleset: RuleSet, limits: Limits = LIMITS) -> Remote | None:
    """Return the files at the URIs of a cluster; None where it is given none.

    A URI at which nothing is, or that cannot be listed, is unreadable.
    """
    pieces, sizes, not_listed = None, dict[str, int](), list[LogFile]()
    for given in map(spark_uri, filter(SCHEME.match, cluster.logs)):
        try:
            found = _listed(spark, given)
        except OSError as error:
            not_listed.append(
                LogFile(_path(given), 0, "unreadable", why=str(error), cluster=cluster.name, uri=given)
            )
            continue
        some = _pieces(spark, given)
        if again := sorted(sizes.keys() & found.keys()):
            some = some.where(~F.col("uri").isin(again))
        pieces = some if pieces is None else pieces.unionByName(some)
        sizes |= found
    if pieces is None:
        return Remote(cluster.name, tuple(not_listed), None) if not_listed else None
    tasks = min(len(sizes), 1 + sum(sizes.values()) // SHARE)
    pieces = (
        pieces.repartition(tasks, "uri").sortWithinPartitions("uri", "place").persist(StorageLevel.DISK_ONLY)
    )

    def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sniffer = Sniffer(ruleset, limits)
        for uri, local in fetched(batches):
            for found in sniffer.look_inside(local, _path(uri)):
                file = replace(found, cluster=cluster.name, timezone=cluster.timezone)
                said = ending(file, sniffer.parser) if file.kind == "log" else {}
                there = replace(file, uri=uri, path=_path(uri), inode=0, ending=said)
                yield pa.RecordBatch.from_pydict({"file": [pickle.dumps(there)]})

    files = defaultdict[str, list[LogFile]](list)
    for row in by_workers(pieces, look, "file BINARY").collect():
        file = pickle.loads(row.file)
        files[file.uri].append(file)
    for encoded, size in sizes.items():
        uri = unquote(encoded)
        if uri not in files:
            long = re.search(_PACKED, uri) and size > LONGEST_PACKED
            why = (
                f"a packed file of {size >> 20:,} MB is not read from a URI; unpack it, or mount it"
                if long
                else ROTATED
            )
            files[uri] = [LogFile(_path(uri), size, "unreadable", why=why, cluster=cluster.name, uri=uri)]
    return Remote(
        cluster.name, (*(file for uri in sorted(files) for file in files[uri]), *not_listed), pieces
    )


def _path(uri: str) -> Path:
    return Path("/", uri.partition(":")[2].lstrip("/"))


def _listed(spark: SparkSession, uri: str) -> dict[str, int]:
    """URI (percent-encoded) -> bytes of every file of a file, folder (in depth) or glob that is not empty.

    Raises OSError where nothing is there, or it cannot be listed.
    """
    try:
        rows = _reader(spark, "binaryFile").load(uri).select("_metadata.file_path", "length").collect()
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        raise OSError(MISSING) from None
    except Py4JJavaError as error:
        why = next((line.lstrip(": ") for line in str(error).splitlines()[1:] if line.startswith(": ")), "")
        raise OSError(f"it cannot be listed: {why}") from None
    return {row.file_path: row.length for row in rows}


def _reader(spark: SparkSession, source: str) -> Any:
    return (
        spark.read.format(source).option("recursiveFileLookup", "true").option("ignoreMissingFiles", "true")
    )


def _pieces(spark: SparkSession, given: str) -> DataFrame:
    """Return text line by line, so that Spark can split long files, and packed files whole, so that a damaged
    one harms no other.
    """
    packed = F.col("_metadata.file_name").rlike(_PACKED)
    of_file = [F.col("_metadata.file_path").alias("uri"), F.col("_metadata.file_size").alias("size")]
    text = _reader(spark, "text").option("lineSep", "\n").load(given).where(~packed)
    lines = text.select(
        *of_file,
        F.col("_metadata.file_block_start").alias("begin"),
        F.col("value").cast("binary").alias("line"),
    )
    whole = (
        _reader(spark, "binaryFile")
        .load(given)
        .where(packed & (F.col("_metadata.file_size") <= LONGEST_PACKED))
    )
    return by_workers(lines, _joined, _PIECES).unionByName(
        whole.select(*of_file, F.lit(0).cast("bigint").alias("place"), F.col("content").alias("data"))
    )


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield pieces of files, joined from their lines (uri, size, begin, line) in the order of blocks."""
    block, done = None, 0
    for batch in batches:
        starts = _changes(batch)
        for at, after in zip(starts, [*starts[1:], batch.num_rows], strict=True):
            uri, size, begin = (batch.column(number)[at].as_py() for number in range(3))
            if (uri, begin) != block:
                block, done = (uri, begin), 0
            data = b"".join(line + b"\n" for line in batch.column(3).slice(at, after - at).to_pylist())
            yield pa.RecordBatch.from_pydict(
                {"uri": [uri], "size": [size], "place": [begin + done], "data": [data]}
            )
            done += len(data)


def _changes(batch: pa.RecordBatch) -> Sequence[int]:
    """Return the numbers of the rows that begin a block."""
    other = [
        pc.not_equal(column.slice(1), column.slice(0, batch.num_rows - 1))
        for column in (batch.column(0), batch.column(2))
    ]
    return [0, *(number + 1 for number in pc.indices_nonzero(pc.or_(*other)).to_pylist())]
