"""audit.toml: what it can contain, and the errors for its mistakes."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from jobs.alerts.sinks import SINK_TYPES
from jobs.alerts.sinks.alertmanager import Alertmanager
from jobs.config import (
    Cluster,
    Config,
    Silence,
    Slo,
    Threshold,
    Topic,
    check_timezone,
    expired_silences,
    load,
)
from jobs.errors import UsageError
from jobs.globs import matches

ONE_CLUSTER = '[[cluster]]\nname = "payments"\nlogs = ["payments/**/*.log*"]\n'


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that writes audit.toml and returns its path."""

    def write(text: str) -> Path:
        path = tmp_path / "audit.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_the_smallest_configuration(written: Callable[[str], Path], tmp_path: Path) -> None:
    path = written(ONE_CLUSTER)
    assert load(path) == Config((Cluster("payments", (str(tmp_path / "payments/**/*.log*"),)),))


def test_clusters_and_thresholds(written: Callable[[str], Path], tmp_path: Path) -> None:
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
    assert load(path).thresholds == (
        Threshold("leaderless_seconds", 5),
        Threshold("reassignment_minutes", 120),
    )


def test_logs_are_relative_to_the_folder_of_the_file(
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
        (ONE_CLUSTER + "[thresold]\n", "unknown key 'thresold'; did you mean 'threshold'?"),
        (ONE_CLUSTER + "[threshold]\n", "threshold must be a list: write [[threshold]]"),
        (
            ONE_CLUSTER + "[thresholds]\nleaderless_second = 3\n",
            "unknown key 'leaderless_second'; did you mean 'leaderless_seconds'?",
        ),
        (
            ONE_CLUSTER + '[thresholds]\nleaderless_seconds = "3"\n',
            "thresholds: leaderless_seconds must be a whole number",
        ),
        (
            ONE_CLUSTER + "[thresholds]\nleaderless_seconds = true\n",
            "thresholds: leaderless_seconds must be a whole number",
        ),
        ("thresholds = 3\n" + ONE_CLUSTER, "thresholds"),
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
    with pytest.raises(UsageError) as raised:
        load(written(text))
    assert complaint in str(raised.value)
    assert raised.value.exit_code == 2


def test_an_unreadable_file_is_an_error(tmp_path: Path) -> None:
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
def test_unknown_timezones(given: str) -> None:
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


def test_thresholds_of_topics_and_silences(written: Callable[[str], Path]) -> None:
    path = written(
        ONE_CLUSTER
        + """
        [thresholds]
        leaderless_seconds = 5
        [[threshold]]
        topic = "tmp-*"
        leaderless_seconds = 600
        reassignment_minutes = 0
        [[threshold]]
        cluster = "pay*"
        leaderless_seconds = 7
        [[silence]]
        check = "illegal_*"
        topic = "tmp-*"
        broker = 3
        until = 2026-12-24T00:00:00+01:00
        reason = "migration"
        who = "Ann"
        [[silence]]
        fingerprint = "0f9c"
        """
    )
    found = load(path)
    assert found.thresholds == (
        Threshold("leaderless_seconds", 5),
        Threshold("leaderless_seconds", 600, topic="tmp-*"),
        Threshold("reassignment_minutes", 0, topic="tmp-*"),
        Threshold("leaderless_seconds", 7, cluster="pay*"),
    )
    until = datetime(2026, 12, 23, 23, tzinfo=UTC)
    silence, other = found.silences
    assert silence == Silence("illegal_*", "*", "tmp-*", "3", None, until, "migration", "Ann")
    assert other == Silence(fingerprint="0f9c*")
    assert expired_silences(found, datetime(2026, 12, 23, 22, 59, tzinfo=UTC)) == []
    assert expired_silences(found, until) == [
        "The silence of check illegal_*, topic tmp-*, broker 3 (migration, until 2026-12-23 23:00:00 UTC, by Ann) has expired; "
        "remove it from audit.toml, or give it more time"
    ]


ENVIRONMENT = {
    "PD_KEY": "r0utingkey",
    "SLACK": "https://hooks.slack.com/services/T0/B0/secret",
    "NOT_URL": "hunter2 is no url",
    "PW": "pw",
}
ONCALL = '[[alert]]\nname = "oncall"\ntype = "alertmanager"\nurl = "http://127.0.0.1:9093"\n'


def test_sinks(written: Callable[[str], Path], tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("")
    path = written(
        'report_url = "https://audit.example.org/last.html"\n'
        + ONE_CLUSTER
        + ONCALL
        + """
        checks = ["illegal_*"]
        clusters = ["pay*"]
        ca_file = "ca.pem"
        [[alert]]
        name = "pager"
        type = "pagerduty"
        routing_key_env = "PD_KEY"
        severity = "critical"
        limit = 3
        [[alert]]
        name = "chat"
        type = "slack"
        url_env = "SLACK"
        severity = "warning"
        ended = false
        [[alert]]
        name = "post"
        type = "mail"
        url = "smtp://mail.example.org:587"
        sender = "audit@example.org"
        to = ["ann@example.org", "bob@example.org"]
        user = "audit"
        password_env = "PW"
        starttls = true
        """
    )
    config = load(path, ENVIRONMENT)
    oncall, pager, chat, post = config.sinks
    assert config.report_url == "https://audit.example.org/last.html"
    assert oncall == Alertmanager(
        name="oncall",
        url="http://127.0.0.1:9093",
        checks=("illegal_*",),
        clusters=("pay*",),
        ca_file=tmp_path / "ca.pem",
    )
    assert (oncall.limit, oncall.ended) == (50, False)
    assert (pager.severity, pager.limit, pager.secret_names()) == (
        "critical",
        3,
        {"routing_key_env": "PD_KEY"},
    )
    assert (chat.url, chat.url_env, chat.ended, chat.limit) == (None, "SLACK", False, 5)
    assert (post.to, post.secret_names()) == (("ann@example.org", "bob@example.org"), {"password_env": "PW"})
    # of a secret, only the name of its variable is kept
    assert not any(secret in repr(config) for secret in ENVIRONMENT.values())


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (ONCALL.replace("alertmanager", "alertmanger"), f"'alertmanger' is none of {', '.join(sorted(SINK_TYPES))}"),
        (ONCALL.replace("alertmanager", "alertmanger"), "did you mean 'alertmanager'?"),
        (ONCALL.replace("type", "typ"), "alert 1: unknown key 'typ'; did you mean 'type'?"),
        (ONCALL.replace('name = "oncall"\n', ""), "alert 1: name is missing"),
        (ONCALL.replace("url", "url_evn"), "unknown key 'url_evn'; did you mean 'url_env'?"),
        (ONCALL.replace("http://127.0.0.1:9093", "127.0.0.1:9093"), "alert 1 ('oncall'): url '127.0.0.1:9093' is no address such as http://host:port"),
        (ONCALL.replace("http:", "ftp:"), "url 'ftp://127.0.0.1:9093' is no address"),
        (ONCALL.replace("9093", "99999"), "is no address"),
        (ONCALL.replace("127.0.0.1", "ann:pw@h"), "url contains a user or password"),
        (ONCALL.replace('url = "http://127.0.0.1:9093"\n', ""), "url is missing"),
        (ONCALL + 'url_env = "PD_KEY"\n', "url and url_env exclude each other"),
        (ONCALL + ONCALL, "alert 2: name 'oncall' is that of another alert"),
        (ONCALL + 'severity = "eror"\n', "severity 'eror' is none of info, warning, error, critical; did you mean 'error'?"),
        (ONCALL + 'checks = ["ilegal_*"]\n', "checks 'ilegal_*' matches no check; the nearest is 'illegal_"),
        (ONCALL + 'clusters = ["payment"]\n', "clusters 'payment' matches no cluster; the nearest is 'payments'"),
        (ONCALL + "checks = []\n", "checks must be a list of texts"),
        (ONCALL + "limit = 0\n", "limit must be 1 or more"),
        (ONCALL + "ended = 1\n", "ended must be true or false"),
        (ONCALL + 'token_env = "PD_KEI"\n', "token_env names the environment variable PD_KEI, which is not set; did you mean PD_KEY?"),
        (ONCALL + 'token_env = "xoxb-12-secret"\n', "token_env must be the name of an environment variable, not the secret itself"),
        (ONCALL + 'routing_key_env = "PD_KEY"\n', "routing_key_env does not go with type 'alertmanager'"),
        (ONCALL + 'user = "ann"\n', "user and password_env go together"),
        (ONCALL + 'ca_file = "none.pem"\n', "which does not exist"),
        ('[[alert]]\nname = "p"\ntype = "pagerduty"\n', "routing_key_env is missing"),
        ('[[alert]]\nname = "s"\ntype = "slack"\nurl = "https://hooks.slack.com/services/T/B/x"\n', "of a Slack webhook is a secret"),
        ('[[alert]]\nname = "s"\ntype = "slack"\nurl_env = "NOT_URL"\n', "url_env names an environment variable that holds no address"),
        ('[[alert]]\nname = "m"\ntype = "mail"\nurl = "smtp://h"\n', "sender is missing"),
        ('[[alert]]\nname = "a"\ntype = "apprise"\nurl = "slack://x"\n', "give url_env"),
        ("[alert]\n", "alert must be a list: write [[alert]]"),
        ("[[silence]]\nreason = 'x'\n", "silence 1: give at least one of check, cluster, topic, broker, fingerprint"),
        ("[[silence]]\ncheck = 'leaderless'\n", "check 'leaderless' matches no check; the nearest is 'partition_leaderless'"),
        ("[[silence]]\ntopic = 'x'\nuntil = 'soon'\n", "until must be a time such as"),
        ("[[silence]]\ntopics = 'x'\n", "unknown key 'topics'; did you mean 'topic'?"),
        ("[[threshold]]\ntopic = 'x'\n", "threshold 1: give topic or cluster (globs), and one of "),
        ("[[threshold]]\nleaderless_seconds = 3\n", "threshold 1: give topic or cluster"),
        ("[[threshold]]\ntopic = 'x'\nleaderles_seconds = 3\n", "did you mean 'leaderless_seconds'?"),
        ("[[threshold]]\ntopic = 'x'\nleaderless_seconds = -1\n", "must be 0 or more"),
    ],
)  # fmt: skip
def test_mistakes_of_alerts_name_file_key_and_the_nearest_known_one(
    written: Callable[[str], Path], text: str, complaint: str
) -> None:
    path = written(ONE_CLUSTER + text)
    with pytest.raises(UsageError) as raised:
        load(path, ENVIRONMENT)
    assert complaint in str(raised.value)
    assert str(path) in str(raised.value)
    assert not any(
        secret in str(raised.value) for secret in (*ENVIRONMENT.values(), "xoxb-12-secret", "services/T/B/x")
    )


def test_the_configuration_in_the_guide(written: Callable[[str], Path]) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "alerts.md").read_text("utf-8")
    (text,) = re.findall(r"```toml\n([^`]*\[\[alert\]\][^`]*)```", guide)
    environment = {
        "PD_ROUTING_KEY": "k",
        "SLACK_WEBHOOK_URL": "https://hooks.slack.com/services/T/B/x",
        "MAIL_PASSWORD": "p",
    }
    assert [
        sink.name for sink in load(written(ONE_CLUSTER + text[text.index("[[") :]), environment).sinks
    ] == [
        "oncall",
        "pager",
        "chat",
        "post",
    ]


@pytest.mark.parametrize(
    ("glob", "name", "is_match"),
    [
        ("illegal_*", "illegal_replica_transition", True),
        ("*", "", True),
        ("orders", "orders-2", False),
        ("orders.?", "orders.1", True),
        ("orders.?", "ordersx1", False),
        ("a[b]+$", "a[b]+$", True),
        ("*\\E*", "x\\Ey", True),
    ],
)
def test_globs(glob: str, name: str, is_match: bool) -> None:
    assert matches([glob], name) is is_match


def test_racks_topics_and_goals(tmp_path: Path) -> None:
    path = tmp_path / "audit.toml"
    cluster = '[[cluster]]\nname = "c"\nlogs = ["x"]\n'
    path.write_text(
        cluster + 'racks = { "1" = "a", "2" = "b" }\n[[topic]]\nname = "orders*"\nmin_insync_replicas = 2\n'
        '[[slo]]\ntopic = "orders*"\navailability = 99.95\nacks = "1"\n'
    )
    found = load(path)
    assert found.clusters[0].racks == {1: "a", 2: "b"}
    assert found.topics == (Topic("orders*", 2),)
    assert found.slos == (Slo(99.95, "orders*", acks="1"),)
    for wrong, complaint in [
        (cluster + 'racks = { "one" = "a" }\n', "racks must be a table of broker ids"),
        (cluster + "[[topic]]\nname = 'a'\n", "min_insync_replicas is missing"),
        (cluster + "[[topic]]\nname = 'a'\nmin_insync_replicas = 0\n", "must be 1 or more"),
        (cluster + "[[slo]]\navailability = 101\n", "availability must be a percentage"),
        (cluster + "[[slo]]\navailability = 99\nacks = '2'\n", "'2' is none of all, 1"),
    ]:
        path.write_text(wrong)
        with pytest.raises(UsageError, match=re.escape(complaint)):
            load(path)
