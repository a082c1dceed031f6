"""What computes: DuckDB on this machine. Queries are text in Spark's SQL."""

import pyarrow as pa

MOMENT = pa.timestamp("us", "UTC")
