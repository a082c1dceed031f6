"""Functions over batches of Arrow, which any process of a run computes: text to events, events again, events to
rows of timelines. Imports no engine.
"""
