"""Rebuild everything that is derived from `events`, without any log: after an upgrade, and by `kafka-audit repair`."""

from collections.abc import Collection, Sequence
from typing import Any

from jobs.config import Config
from jobs.engine.rows import run_concurrently
from jobs.progress import stage
from parsers.rules import RuleSet


def keeps_of(ruleset: RuleSet) -> dict[str, tuple[str, ...]]:
    """Return event type -> columns that keep their value, by the rules."""
    return {rule.name: tuple(rule.keeps) for rule in ruleset.rules if rule.keeps}


def rebuild(store: Any, clusters: Sequence[str], ruleset: RuleSet, config: Config) -> None:
    """Write timelines, coverage, assignments, durability and comparisons with checkpoints, for clusters in `events`.

    store: `Store`, in which what `cluster_facts` has of them is removed. Findings do not change: the next audit of a cluster checks them again.
    """
    from jobs.engine import upgrade
    from jobs.engine.rows import of_clusters
    from jobs.landing import tool_outputs
    from jobs.nightly import updates
    from jobs.operators import assignments, durability

    store.delete(upgrade.FACTS, of_clusters(clusters))
    made = updates.update(store, updates.read(store, clusters, keeps_of(ruleset)))
    racks = {cluster.name: cluster.racks for cluster in config.clusters}
    run_concurrently(
        lambda: assignments.write(store, made, made.facts.keys(), racks),
        lambda: durability.write(store, made, made.facts.keys(), config),
    )
    if made.facts:
        tool_outputs.write(store, [], made.facts)
    updates.note(store, made, "", {})


def rebuild_others(store: Any, clusters: Collection[str], ruleset: RuleSet, config: Config) -> None:
    """Rebuild the clusters that are not of this run, where an upgrade or other rules require it; then nothing is left to rebuild."""
    if others := sorted(store.stale_clusters().difference(clusters)):
        with stage("rebuild other clusters") as doing:
            rebuild(store, others, ruleset, config)
            doing.note(", ".join(others))
    store.rebuilt()
