"""audit.toml: what it may hold, and what a mistake in it is answered with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.config import Cluster, Config, Thresholds, check_timezone, load
from jobs.errors import UsageError

ONE_CLUSTER = '[[cluster]]\nname = "payments"\nlogs = ["payments/**/*.log*"]\n'


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], Path]:
    """Writes audit.toml and gives its path."""

    def write(text: str) -> Path:
        path = tmp_path / "audit.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_smallest(written: Callable[[str], Path], tmp_path: Path) -> None:
    path = written(ONE_CLUSTER)
    assert load(path) == Config((Cluster("payments", (str(tmp_path / "payments/**/*.log*"),)),), Thresholds())


def test_everything(written: Callable[[str], Path], tmp_path: Path) -> None:
    path = written(
        """
        [[cluster]]
        name = "payments"
        logs = ["a", "/var/log/kafka", "../b/*.gz"]
        timezone = "Europe/Berlin"
        kafka_version = "3.3.2"
        [[cluster]]
        name = "orders"
        logs = ["o"]
        [thresholds]
        leaderless_seconds = 5
        reassignment_minutes = 120
        """
    )
    payments, orders = load(path).clusters
    assert payments.logs == (str(tmp_path / "a"), "/var/log/kafka", str(tmp_path / "../b/*.gz"))
    assert (payments.timezone, payments.kafka_version) == ("Europe/Berlin", "3.3.2")
    assert (orders.name, orders.timezone, orders.kafka_version) == ("orders", "UTC", None)
    assert load(path).thresholds == Thresholds(leaderless_seconds=5, reassignment_minutes=120)


def test_logs_are_relative_to_the_file_not_to_the_folder_of_the_call(
    written: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written(ONE_CLUSTER)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    (log,) = load(Path("../audit.toml")).clusters[0].logs
    assert Path(log).resolve() == tmp_path / "payments/**/*.log*"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (ONE_CLUSTER + 'timezon = "UTC"\n', "unknown key 'timezon'; did you mean 'timezone'?"),
        (ONE_CLUSTER + 'kafka-version = "3"\n', "unknown key 'kafka-version'; did you mean 'kafka_version'?"),
        (ONE_CLUSTER.replace("logs", "log"), "unknown key 'log'; did you mean 'logs'?"),
        (
            ONE_CLUSTER.replace("[[cluster]]", "[[clusters]]"),
            "unknown key 'clusters'; did you mean 'cluster'?",
        ),
        (ONE_CLUSTER + "[threshold]\n", "unknown key 'threshold'; did you mean 'thresholds'?"),
        (
            ONE_CLUSTER + "[thresholds]\nleaderless_second = 3\n",
            "unknown key 'leaderless_second'; did you mean 'leaderless_seconds'?",
        ),
        (
            ONE_CLUSTER + '[thresholds]\nleaderless_seconds = "3"\n',
            "thresholds.leaderless_seconds must be a whole number",
        ),
        (
            ONE_CLUSTER + "[thresholds]\nleaderless_seconds = true\n",
            "thresholds.leaderless_seconds must be a whole number",
        ),
        ("thresholds = 3\n" + ONE_CLUSTER, "thresholds"),
        ("", "no [[cluster]]"),
        ("[[cluster]]\nname = 'a'\n", "cluster 1: logs is missing"),
        ("[[cluster]]\nlogs = ['a']\n", "cluster 1: name is missing"),
        ("[[cluster]]\nname = 'a'\nlogs = 'a'\n", "logs must be a list"),
        ("[[cluster]]\nname = 'a'\nlogs = [1]\n", "logs must be a text"),
        ("[[cluster]]\nname = 1\nlogs = ['a']\n", "name must be a text"),
        ("[cluster]\nname = 'a'\nlogs = ['a']\n", "cluster must be a list"),
        ("cluster = [1]\n", "cluster 1"),
        (ONE_CLUSTER + ONE_CLUSTER, "two clusters have the same name"),
        (ONE_CLUSTER + 'timezone = "Mars/Olympus"\n', "Mars/Olympus: no such zone"),
        ("name = ", "audit.toml"),
    ],
)
def test_mistakes_are_answered(written: Callable[[str], Path], text: str, complaint: str) -> None:
    with pytest.raises(UsageError) as told:
        load(written(text))
    assert complaint in str(told.value)
    assert told.value.exit_code == 2


def test_unreadable(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        load(tmp_path / "none.toml")
    with pytest.raises(UsageError, match="directory"):
        load(tmp_path)
    binary = tmp_path / "audit.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError):
        load(binary)


@pytest.mark.parametrize(
    ("given", "zone"),
    [
        ("UTC", "UTC"),
        ("Europe/Berlin", "Europe/Berlin"),
        ("America/Argentina/Buenos_Aires", "America/Argentina/Buenos_Aires"),
        ("Etc/GMT+5", "Etc/GMT+5"),
        ("GMT+09:30", "+09:30"),
        ("GMT-3", "-03:00"),
        ("UTC+0545", "+05:45"),
        ("+02:00", "+02:00"),
        ("-08:00", "-08:00"),
        ("GMT+18:00", "+18:00"),
    ],
)
def test_timezones(given: str, zone: str) -> None:
    assert check_timezone(given) == zone


@pytest.mark.parametrize(
    "given",
    [
        "Mars/Olympus",
        "GMT+19",
        "+18:30",
        "GMT+09:60",
        "+9:3",
        "../../etc/passwd",
        "/etc/localtime",
        "Europe",
        "",
        "ABC",
    ],
)
def test_no_timezones(given: str) -> None:
    with pytest.raises(UsageError, match="no such zone"):
        check_timezone(given)


def test_rules_are_relative_to_the_file(tmp_path: Path) -> None:
    path = tmp_path / "audit.toml"
    path.write_text('rules = "ours"\n[[cluster]]\nname = "c"\nlogs = ["l"]\n')
    assert load(path).rules == tmp_path / "ours"
    path.write_text('[[cluster]]\nname = "c"\nlogs = ["l"]\n')
    assert load(path).rules is None
    path.write_text('rules = 7\n[[cluster]]\nname = "c"\nlogs = ["l"]\n')
    with pytest.raises(UsageError, match="rules must be a text"):
        load(path)
