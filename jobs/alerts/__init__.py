"""Alerts: which findings are due where (`outbox`), what is said about them (`text`, `payloads`), how it gets there (`sending`).

The first three are pure; `delivery` joins them with the tables.
"""
