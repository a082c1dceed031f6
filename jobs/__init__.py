"""What runs: ingest, timelines, checks, report."""
