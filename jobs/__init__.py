"""The program: ingest, timelines, checks, report."""
