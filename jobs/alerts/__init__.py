"""Alerts: which findings are due at which sink (`outbox`), their text (`text`), and how they are sent (`sink`, `sinks`, `http`).

`outbox` and `text` are pure; `delivery` reads the tables and records what was sent, `command` is the command line.
"""
