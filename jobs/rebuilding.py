"""Rebuild all derived tables from `events`: after an upgrade, and by `kafka-audit repair`."""

from collections.abc import Collection, Sequence
from typing import Any

from jobs.config import Config
from jobs.engine.rows import run_concurrently
from jobs.progress import stage
from parsers.rules import RuleSet


def keeps_of(ruleset: RuleSet) -> dict[str, tuple[str, ...]]:
    """Return event type -> columns that keep their value."""
    return {rule.name: tuple(rule.keeps) for rule in ruleset.rules if rule.keeps}


def rebuild(store: Any, clusters: Sequence[str], ruleset: RuleSet, config: Config) -> None:
    """Rebuild timelines, coverage, assignments, durability and checkpoints of clusters in `events`.

    store: `Store`; the rows of the clusters in its `cluster_facts` are replaced. Findings do not change until
    the next audit of a cluster.
    """
    from jobs.engine import upgrade
    from jobs.engine.rows import of_clusters
    from jobs.landing import tool_outputs
    from jobs.nightly import updates
    from jobs.operators import assignments, durability

    store.delete(upgrade.FACTS, of_clusters(clusters))
    rebuilt = updates.update(store, updates.read(store, clusters, keeps_of(ruleset)))
    racks = {cluster.name: cluster.racks for cluster in config.clusters}
    run_concurrently(
        lambda: assignments.write(store, rebuilt, rebuilt.facts.keys(), racks),
        lambda: durability.write(store, rebuilt, rebuilt.facts.keys(), config),
    )
    if rebuilt.facts:
        tool_outputs.write(store, [], rebuilt.facts)
    updates.note(store, rebuilt, "", {})


def rebuild_others(store: Any, clusters: Collection[str], ruleset: RuleSet, config: Config) -> None:
    """Rebuild the clusters outside of this run that an upgrade or other rules require to rebuild."""
    if others := sorted(store.stale_clusters().difference(clusters)):
        with stage("rebuild other clusters") as doing:
            rebuild(store, others, ruleset, config)
            doing.note(", ".join(others))
    store.rebuilt()
