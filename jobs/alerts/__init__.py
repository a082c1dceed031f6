"""Alerts: find what is due, write the texts, send and record them.

`outbox` finds the findings that are due at each sink, `text` writes the texts; both are pure. `sink`, `sinks`
and `http` send. `delivery` reads the tables and records what was sent. `command` is the command line.
"""
