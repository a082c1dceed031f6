"""Starts a real Kafka on loopback, in KRaft or ZooKeeper mode, runs a scenario, keeps logs and truth as
sample_logs/ has them, and checks them.

    python tests/recorder/record.py --kafka 4.3.0 --scenario reassign --into recordings
    python tests/recorder/record.py --fault disk-full

A scenario is a TOML file: nodes (ids of brokers), controllers (ids of nodes that are KRaft controllers alone;
without them each broker is one, too), log_dirs (of each broker, 1 without it), small_disks (node -> megabytes
of the file system that its data is on), networked (each node has a network of its own), clocks (nodes whose
clock can jump), fault (see faults.py) and steps, each with `do`: create (topic, assignment or partitions and
replication_factor, config) · expand (topic, partitions) · fill (topic, records) · delete (topic) · reassign
(plan, throttle, cancel) · elect (type, topic) · kill, stop (node = "controller": the active one) · start
(node = "all": that have ended; expect = "runs", "ends" or "anything") · break, mend (node: its last log
directory; to be mended while it is down) · wait (until = "reassigned" or "in sync") · describe · sleep
(seconds) · pause (node, "controller" too: its process stands still) · resume (node = "all": that are paused)
· wipe (all data deleted, the same nodes begin anew and their logs go on) · migrate (to = "hybrid", then
"kraft", then "finalized"; ZooKeeper mode only;
brokers: those that are restarted, all without it) · wipe_node (node; cluster_id = "other") · crowd (node:
another file fills its small disk) · lock, unlock (node: nobody may read its last log directory) · cut
(groups: lists of nodes between which every packet is lost) · join · jump (node, seconds: its clock) · double
(node: a second process with its id, its own disk and its own ports) · occupy (node: its port is taken) ·
configure (node, set) · damage (node, file = "log" or "checkpoint": bytes of its metadata log, or of the
newest snapshot, are overwritten). A step with `fault = true` is the moment at which the fault begins.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from recorder import metadata_log, zookeeper_log  # noqa: E402
from recorder.jars import RecorderError, class_of, fetch, numbers  # noqa: E402

SCENARIOS = Path(__file__).with_name("scenarios")
FAULTS = ROOT / "tests" / "recorded_faults"
HEAP = "-Xmx256m"
STARTED_WITHIN, WAITED_FOR = 120, 120  # seconds, on a busy machine
# step -> keys that it must have, keys that it may have
STEPS: dict[str, tuple[set[str], set[str]]] = {
    "create": ({"topic"}, {"assignment", "partitions", "replication_factor", "config"}),
    "expand": ({"topic", "partitions"}, set()),
    "fill": ({"topic", "records"}, set()),
    "reassign": ({"plan"}, {"throttle", "cancel"}),
    "delete": ({"topic"}, set()),
    "elect": ({"type"}, {"topic"}),
    "kill": ({"node"}, set()),
    "stop": ({"node"}, set()),
    "start": ({"node"}, {"expect"}),
    "pause": ({"node"}, set()),
    "resume": ({"node"}, set()),
    "break": ({"node"}, set()),
    "mend": ({"node"}, set()),
    "wait": ({"until"}, set()),
    "describe": (set(), set()),
    "sleep": ({"seconds"}, set()),
    "wipe": (set(), set()),
    "migrate": ({"to"}, {"brokers"}),
    "wipe_node": ({"node"}, {"cluster_id"}),
    "crowd": ({"node"}, set()),
    "lock": ({"node"}, set()),
    "unlock": ({"node"}, set()),
    "cut": ({"groups"}, set()),
    "join": (set(), set()),
    "jump": ({"node", "seconds"}, set()),
    "double": ({"node"}, set()),
    "occupy": ({"node"}, set()),
    "configure": ({"node", "set"}, set()),
    "damage": ({"node", "file"}, set()),
}
EXPECTED = ("runs", "ends", "anything")
# the network that nodes of a networked scenario share: the last byte of an address is the node's id
NETWORK = "10.77.0"
# where nobody answers
NOWHERE = "02:00:00:00:00:01"
CLOCK = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
# how far a cluster is on its way from ZooKeeper
MIGRATIONS = ("hybrid", "kraft", "finalized")
# step -> what stands for no node in particular
ANY_NODE = {
    "kill": "controller",
    "stop": "controller",
    "pause": "controller",
    "start": "all",
    "resume": "all",
}
QUORUM = """controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
controller.quorum.voters={voters}
broker.session.timeout.ms=6000
broker.heartbeat.interval.ms=1500
"""
KRAFT = (
    """process.roles={roles}
node.id={node}
listeners={listeners}
"""
    + QUORUM
)
CONNECT = """zookeeper.connect=127.0.0.1:{zookeeper_port}
zookeeper.session.timeout.ms=6000
"""
ZOOKEEPER = (
    """broker.id={node}
listeners=PLAINTEXT://{host}:{port}
advertised.listeners=PLAINTEXT://{host}:{port}
"""
    + CONNECT
)
MIGRATION = "zookeeper.metadata.migration.enable=true\n"
PROPERTIES = """log.dirs={log_dirs}
num.network.threads=2
num.io.threads=2
offsets.topic.replication.factor=2
offsets.topic.num.partitions=2
log.cleaner.dedupe.buffer.size=2097152
log.index.size.max.bytes=1048576
replica.lag.time.max.ms=8000
"""
ZOOKEEPER_SERVER = """dataDir={data}
clientPort={port}
clientPortAddress=127.0.0.1
tickTime=2000
admin.enableServer=false
"""
ENVIRONMENT = re.compile(rb"^.*(?:Client|Server) environment:.*\n", re.MULTILINE)
# logger, the file that it writes, its level in Kafka's own configuration, and the one that shows more
STATES = ("state.change.logger", "state-change", "INFO", "TRACE")
OF_KRAFT = ("org.apache.kafka.controller", "controller", "INFO", "DEBUG")
OF_ZOOKEEPER = ("kafka.controller", "controller", "TRACE", "TRACE")
OF_PARTITIONS = ("kafka.cluster.Partition", "server", "INFO", "TRACE")
LOGGERS = {
    "kraft": (OF_KRAFT, STATES, OF_PARTITIONS),
    "zookeeper": (OF_ZOOKEEPER, STATES, OF_PARTITIONS),
    "migration": (OF_ZOOKEEPER, OF_KRAFT, STATES, OF_PARTITIONS),
}


def scenario_of(path: Path) -> dict[str, Any]:
    """A scenario that can be run. Raises RecorderError."""
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except OSError:
        known = ", ".join(sorted(file.stem for file in SCENARIOS.glob("*.toml")))
        raise RecorderError(f"There is no scenario {path.stem}; there is {known}") from None
    except tomllib.TOMLDecodeError as error:
        raise RecorderError(f"{path}: {error}") from None
    nodes, controllers = content.get("nodes"), content.get("controllers", [])
    for name, ids in (("nodes", nodes), ("controllers", controllers)):
        least = 1 if name == "nodes" else 0
        if (
            not isinstance(ids, list)
            or not least <= len(ids) <= 6
            or not all(type(node) is int for node in ids)
        ):
            raise RecorderError(f"{path}: {name} must be a list of one to six ids")
    log_dirs = content.get("log_dirs", 1)
    if type(log_dirs) is not int or not 1 <= log_dirs <= 4:
        raise RecorderError(f"{path}: log_dirs must be a number from one to four")
    for number, step in enumerate(content.get("step", []), 1):
        needed, allowed = STEPS.get(step.get("do"), (None, None))
        if needed is None or allowed is None:
            raise RecorderError(
                f"{path}: step {number}: do is {step.get('do')!r}; known are {', '.join(STEPS)}"
            )
        if missing := needed - step.keys():
            raise RecorderError(f"{path}: step {number} ({step['do']}): {min(missing)} is missing")
        if unknown := step.keys() - needed - allowed - {"do", "fault"}:
            raise RecorderError(f"{path}: step {number} ({step['do']}): unknown key {min(unknown)!r}")
        if "node" in step and step["node"] not in [*nodes, *controllers, ANY_NODE.get(step["do"])]:
            raise RecorderError(f"{path}: step {number} ({step['do']}): there is no node {step['node']}")
        if step["do"] == "migrate" and (not controllers or step["to"] not in MIGRATIONS):
            raise RecorderError(
                f"{path}: step {number} (migrate): to is one of {', '.join(MIGRATIONS)}, and controllers are needed"
            )
        if step.get("expect", "runs") not in EXPECTED:
            raise RecorderError(f"{path}: step {number} (start): expect is one of {', '.join(EXPECTED)}")
        for kind, key, needs in (
            ("crowd", "small_disks", "node"),
            ("jump", "clocks", "node"),
            ("cut", "networked", None),
        ):
            known = content.get(key, [])
            if step["do"] == kind and not (str(step["node"]) in map(str, known) if needs else known):
                raise RecorderError(f"{path}: step {number} ({kind}): {key} does not allow it")
        if step["do"] == "break" and log_dirs == 1:
            raise RecorderError(
                f"{path}: step {number} (break): a broker with one log directory ends with it; set log_dirs"
            )
    return content


def log4j_properties(version: str, mode: str, level: str, folder: str) -> tuple[str, str]:
    """(option of Java, text of the file): controller.log, state-change.log and server.log of a node, with the
    official pattern and levels.
    """
    trace, loggers = level == "trace", LOGGERS[mode]
    files = dict.fromkeys(["server", *(file for _, file, _, _ in loggers)])
    if numbers(version) >= (4,):
        lines = ["rootLogger.level = INFO", "rootLogger.appenderRef.server.ref = server"]
        for name in files:
            lines += [
                f"appender.{name}.type = File", f"appender.{name}.name = {name}", f"appender.{name}.fileName = {folder}/{name}.log",
                f"appender.{name}.layout.type = PatternLayout", f"appender.{name}.layout.pattern = [%d] %p %m (%c)%n",
            ]  # fmt: skip
        for number, (logger, name, default, traced) in enumerate(loggers):
            lines += [
                f"logger.{number}.name = {logger}", f"logger.{number}.level = {traced if trace else default}",
                f"logger.{number}.additivity = false", f"logger.{number}.appenderRef.{name}.ref = {name}",
            ]  # fmt: skip
        return "log4j2.configurationFile", "\n".join(lines) + "\n"
    lines = ["log4j.rootLogger=INFO, server"]
    for name in files:
        lines += [
            f"log4j.appender.{name}=org.apache.log4j.FileAppender", f"log4j.appender.{name}.File={folder}/{name}.log",
            f"log4j.appender.{name}.layout=org.apache.log4j.PatternLayout",
            f"log4j.appender.{name}.layout.ConversionPattern=[%d] %p %m (%c)%n",
        ]  # fmt: skip
    for logger, name, default, traced in loggers:
        lines += [
            f"log4j.logger.{logger}={traced if trace else default}, {name}",
            f"log4j.additivity.{logger}=false",
        ]
    return "log4j.configuration", "\n".join(lines) + "\n"


def new_cluster_id() -> str:
    """A random one."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on now."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def forget(recording: Path, folders: Sequence[Path]) -> None:
    """Takes this machine out of all that was recorded: its folders, and the lines in which ZooKeeper's client
    describes it.
    """
    for file in (path for path in recording.rglob("*") if path.is_file()):
        before = file.read_bytes()
        after = ENVIRONMENT.sub(b"", before)
        for folder in folders:
            after = after.replace(str(folder).encode(), b"")
        if after != before:
            file.write_bytes(after)


def system(*command: object) -> None:
    """Run a command of the operating system. Raises RecorderError."""
    try:
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise RecorderError(f"{command[0]} is not installed") from None
    if done.returncode:
        raise RecorderError(
            f"{' '.join(map(str, command))}: {done.stderr.strip()}; the recorder needs the rights of root for it"
        )


class Machines:
    """What nodes of a scenario have of their own beside a process: a small disk, a network, a clock.

    Needs the rights of root where there is any.
    """

    def __init__(self, scenario: dict[str, Any], work: Path, nodes: Sequence[int]) -> None:
        self.work = work
        self.disks = {int(node): size for node, size in scenario.get("small_disks", {}).items()}
        self.networked = list(nodes) if scenario.get("networked") else []
        self.clocks = scenario.get("clocks", [])
        self.is_bound_by_permissions = any(step["do"] == "lock" for step in scenario.get("step", []))
        self.bridge = f"kr{os.getpid()}"
        self.lost: list[tuple[int, int]] = []

    def open(self) -> None:
        """Make them. Raises RecorderError."""
        for node, megabytes in self.disks.items():
            folder = self.work / f"data-{node}"
            folder.mkdir()
            system("mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", folder)
        for node in self.clocks:
            if not CLOCK.is_file():
                raise RecorderError("faketime is not installed (apt-get install faketime)")
            self.set_clock(node, 0)
        if self.networked:
            system("ip", "link", "add", self.bridge, "type", "bridge")
            system("ip", "addr", "add", f"{NETWORK}.254/24", "dev", self.bridge)
            system("ip", "link", "set", self.bridge, "up")
        for node in self.networked:
            name, outside, inside = self.namespace(node), f"kr{node}h", f"kr{node}i"
            system("ip", "netns", "add", name)
            system("ip", "link", "add", outside, "type", "veth", "peer", "name", inside)
            system("ip", "link", "set", outside, "master", self.bridge, "up")
            system("ip", "link", "set", inside, "netns", name)
            for command in (
                ["addr", "add", f"{self.host(node)}/24", "dev", inside],
                ["link", "set", inside, "up"],
                ["link", "set", "lo", "up"],
            ):
                system("ip", "-n", name, *command)

    def close(self) -> None:
        """Take them away."""
        with contextlib.suppress(RecorderError):
            for node in self.disks:
                system("umount", self.work / f"data-{node}")
            for node in self.networked:
                system("ip", "netns", "del", self.namespace(node))
            if self.networked:
                system("ip", "link", "del", self.bridge)

    def namespace(self, node: int) -> str:
        return f"{self.bridge}-{node}"

    def host(self, node: int) -> str:
        """The address of a node."""
        return f"{NETWORK}.{node}" if node in self.networked else "127.0.0.1"

    def around(self, node: int) -> list[str]:
        """What a node's command begins with."""
        found = ["ip", "netns", "exec", self.namespace(node)] if node in self.networked else []
        if self.is_bound_by_permissions and os.geteuid() == 0:
            found += ["setpriv", "--inh-caps=-all", "--bounding-set=-all"]
        return found

    def environment(self, node: int) -> dict[str, str]:
        """Environment of a node's process."""
        if node not in self.clocks:
            return dict(os.environ)
        return os.environ | {
            "LD_PRELOAD": str(CLOCK),
            "FAKETIME_TIMESTAMP_FILE": str(self.clock(node)),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }

    def clock(self, node: int) -> Path:
        return self.work / f"clock-{node}"

    def set_clock(self, node: int, seconds: int) -> None:
        """Let a node's clock be that much fast from now on."""
        file = self.clock(node).with_suffix(".new")
        file.write_text(f"{seconds:+d}\n", "utf-8")
        file.rename(self.clock(node))

    def cut(self, groups: Sequence[Sequence[int]]) -> None:
        """Lose every packet between nodes of different groups."""
        for group in groups:
            others = [node for other in groups if other is not group for node in other]
            self.lost += [(node, other) for node in group for other in others]
        for node, other in self.lost:
            device = ["dev", f"kr{node}i"]
            system(
                "ip",
                "-n",
                self.namespace(node),
                "neigh",
                "replace",
                self.host(other),
                "lladdr",
                NOWHERE,
                "nud",
                "permanent",
                *device,
            )

    def join(self) -> None:
        """Lose no more packets."""
        for node, other in self.lost:
            system("ip", "-n", self.namespace(node), "neigh", "del", self.host(other), "dev", f"kr{node}i")
        self.lost = []


def listens(port: int, host: str = "127.0.0.1") -> bool:
    """Whether somebody does."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), 1):
        return True
    return False


class Cluster:
    """Nodes of KRaft on loopback, their tools, and what was done to them.

    As a context manager: no node outlives it.

    ports: of brokers. quorum: of controllers. Without controllers of their own brokers are also these.
    """

    mode = "kraft"

    def __init__(
        self, version: str, level: str, scenario: dict[str, Any], recording: Path, work: Path
    ) -> None:
        self.version, self.level, self.recording, self.work = version, level, recording, work
        self.jars = fetch(version)
        self.log_dirs = scenario.get("log_dirs", 1)
        self.machines = Machines(scenario, work, [*scenario["nodes"], *scenario.get("controllers", [])])
        self.cluster_id = new_cluster_id()
        self.doubles: list[subprocess.Popen[bytes]] = []
        self.occupied: list[socket.socket] = []
        brokers = scenario["nodes"]
        voters = scenario.get("controllers") or brokers
        ports = free_ports(len(brokers) + len(voters))
        self.ports = dict(zip(brokers, ports[: len(brokers)], strict=True))
        self.quorum = dict(zip(voters, ports[len(brokers) :], strict=True))
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        self.paused: list[int] = []
        self.outputs = 0
        self.incarnation = 1  # of the cluster: one more with each wipe
        self.wiped = any(step["do"] == "wipe" for step in scenario.get("step", []))

    def __enter__(self) -> Cluster:
        self.machines.open()
        return self

    def __exit__(self, *_: object) -> None:
        for process in [*self.running.values(), *self.doubles]:
            process.kill()
            process.wait()
        for one in self.occupied:
            one.close()
        self.machines.close()
        forget(self.recording, [self.work, self.jars])

    def note(self, action: str, **what: Any) -> None:
        """Writes down a step, before it is done."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        with (self.recording / "steps.jsonl").open("a", encoding="utf-8") as steps:
            steps.write(json.dumps({"ts": now, "action": action} | what) + "\n")
        print(f"{now[11:19]} {action} {' '.join(f'{k}={v}' for k, v in what.items())}"[:160], file=sys.stderr)

    def java(self, main: str, *arguments: str, options: Sequence[str] = ()) -> list[str]:
        return ["java", HEAP, "-XX:TieredStopAtLevel=1", *options, "-cp", f"{self.jars}/*", main, *arguments]

    def tool(self, simple_name: str, *arguments: str, timeout: float = 180) -> str:
        """Runs one of Kafka's own tools; what it printed. Raises RecorderError."""
        quiet = self.work / "tools.properties"
        quiet.write_text(
            "rootLogger.level = ERROR\n" if numbers(self.version) >= (4,) else "log4j.rootLogger=ERROR\n",
            "utf-8",
        )
        option = "log4j2.configurationFile" if numbers(self.version) >= (4,) else "log4j.configuration"
        command = self.java(
            class_of(self.jars, simple_name), *arguments, options=[f"-D{option}=file:{quiet}"]
        )
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
        except subprocess.TimeoutExpired:
            raise RecorderError(
                f"{simple_name} {' '.join(arguments)} did not end within {timeout:.0f} s"
            ) from None
        if done.returncode:
            said = done.stderr.strip()[-400:] + done.stdout.strip()[-400:]
            raise RecorderError(f"{simple_name} {' '.join(arguments)} failed: {said}")
        return done.stdout

    @property
    def bootstrap(self) -> str:
        """Of the brokers that run."""
        return ",".join(
            f"{self.machines.host(node)}:{port}"
            for node, port in self.ports.items()
            if node not in self.paused and node in self.running and self.running[node].poll() is None
        )

    def address(self, since: tuple[int, ...]) -> list[str]:
        """Options of a tool that talks to brokers from a version on, and to ZooKeeper before."""
        return ["--bootstrap-server", self.bootstrap]

    def is_reassigned(self) -> bool:
        """Whether no partition is being reassigned."""
        return "No partition reassignments" in self.tool(
            "ReassignPartitionsCommand", *self.address((2, 6)), "--list"
        )

    @property
    def nodes(self) -> list[int]:
        """Brokers first."""
        return list(self.ports | self.quorum)

    def active_controller(self) -> int:
        """The node that leads the quorum."""
        told = self.tool(
            "MetadataQuorumCommand", "--bootstrap-server", self.bootstrap, "describe", "--status"
        )
        return int(re.findall(r"LeaderId:\s+(\d+)", told)[0])

    def format(self) -> None:
        """Writes configurations and formats the nodes' folders."""
        self.cluster_id = new_cluster_id()
        self.note(
            "format",
            nodes=self.nodes,
            cluster_id=self.cluster_id,
            voters=list(self.quorum),
            brokers=list(self.ports),
        )
        for node in self.nodes:
            self.format_node(self.write_properties(node, KRAFT), self.cluster_id)

    def format_node(self, properties: Path, cluster_id: str) -> None:
        """Format the folders of one node."""
        # an id may begin with a dash
        self.tool("StorageTool", "format", f"--cluster-id={cluster_id}", "-c", str(properties))

    def write_properties(self, node: int, text: str, **values: Any) -> Path:
        """Writes the configuration of a node."""
        (self.recording / f"node-{node}").mkdir(exist_ok=True)
        file = self.work / f"node-{node}.properties"
        host = self.machines.host(node)
        listeners = {
            role: f"{protocol}://{host}:{ids[node]}"
            for role, protocol, ids in (
                ("broker", "PLAINTEXT", self.ports),
                ("controller", "CONTROLLER", self.quorum),
            )
            if node in ids
        }
        values |= {
            "node": node, "host": host, "port": self.ports.get(node), "log_dirs": ",".join(map(str, self.log_dirs_of(node))),
            "roles": ",".join(listeners), "listeners": ",".join(listeners.values()),
            "voters": ",".join(f"{voter}@{self.machines.host(voter)}:{port}" for voter, port in self.quorum.items()),
        }  # fmt: skip
        file.write_text((text + PROPERTIES).format(**values), "utf-8")
        return file

    def log_dirs_of(self, node: int) -> list[Path]:
        """The first has the metadata log."""
        return [self.work / (f"data-{node}" if n == 0 else f"data-{node}-{n}") for n in range(self.log_dirs)]

    def wipe(self) -> None:
        """Stops all nodes, keeps the truth till then, deletes what they wrote, and begins another cluster
        with them.
        """
        self.stop_all()
        self.dump()
        self.note("data deleted on all nodes")
        self.delete_data()
        self.incarnation += 1
        self.format()
        self.start(*self.nodes)

    def wipe_node(self, node: int, cluster_id: str | None = None) -> None:
        """Delete what a node that has ended wrote, and format it for this cluster or for another one."""
        identity = self.cluster_id if cluster_id is None else new_cluster_id()
        self.note("data of a node deleted", node=node, cluster_id=identity)
        for folder in self.log_dirs_of(node):
            shutil.rmtree(folder, ignore_errors=True)
        self.format_node(self.work / f"node-{node}.properties", identity)

    def crowd(self, node: int) -> None:
        """Fill the disk of a node with another file."""
        self.note("disk filled up", node=node, directory=f"data-{node}")
        with (
            contextlib.suppress(OSError),
            (self.work / f"data-{node}" / "other-program").open("wb", buffering=0) as file,
        ):
            while file.write(bytes(1 << 16)):
                pass

    def lock(self, node: int) -> None:
        """Let nobody read or write the last log directory of a node."""
        folder = self.log_dirs_of(node)[-1]
        self.note("permissions taken", node=node, directory=folder.name)
        folder.chmod(0)

    def unlock(self, node: int) -> None:
        """Take that back."""
        folder = self.log_dirs_of(node)[-1]
        self.note("permissions given back", node=node, directory=folder.name)
        folder.chmod(0o755)

    def cut(self, groups: list[list[int]]) -> None:
        """Lose every packet between nodes of different groups."""
        self.note("network cut", groups=groups)
        self.machines.cut(groups)

    def join(self) -> None:
        """Lose no more packets."""
        self.note("network whole again")
        self.machines.join()

    def jump(self, node: int, seconds: int) -> None:
        """Let the clock of a node jump."""
        self.note("clock jumps", node=node, seconds=seconds)
        self.machines.set_clock(node, seconds)

    def double(self, node: int) -> None:
        """Start a second broker with the id of a node; it has its own disk, its own port and its own logs."""
        name, data = f"node-{node}-double", self.work / f"data-{node}-double"
        properties = self.work / f"{name}.properties"
        text = (self.work / f"node-{node}.properties").read_text("utf-8")
        text = text.replace(",".join(map(str, self.log_dirs_of(node))), str(data))
        (port,) = free_ports(1)
        properties.write_text(text.replace(f":{self.ports[node]}", f":{port}"), "utf-8")
        self.note("second process with the same id", node=node, logs=name)
        self.format_node(properties, self.cluster_id)
        self.doubles.append(self.spawn(node, name))

    def occupy(self, node: int) -> None:
        """Let another program listen on the port of a node."""
        self.note("port taken", node=node)
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(("127.0.0.1", (self.quorum | self.ports)[node]))
        one.listen()
        self.occupied.append(one)

    def configure(self, node: int, set: dict[str, str]) -> None:
        """Change the configuration of a node, for its next start."""
        self.note("configuration changed", node=node, set=set)
        file = self.work / f"node-{node}.properties"
        kept = [line for line in file.read_text("utf-8").splitlines() if line.partition("=")[0] not in set]
        file.write_text(
            "\n".join([*kept, *(f"{name}={value}" for name, value in set.items())]) + "\n", "utf-8"
        )

    def damage(self, node: int, file: str) -> None:
        """Overwrite bytes amid the metadata log of a node, or amid its newest snapshot.

        Raises RecorderError.
        """
        folder = self.work / f"data-{node}" / "__cluster_metadata-0"
        found = sorted(folder.glob(f"*.{file}"))
        if not found:
            raise RecorderError(f"Node {node} has no {file} of its metadata")
        size = found[-1].stat().st_size
        self.note("bytes overwritten", node=node, file=found[-1].name, at=size // 3, bytes=64)
        with found[-1].open("r+b") as content:
            content.seek(size // 3)
            content.write(b"\xa5" * 64)

    def kill(self, node: int) -> None:
        """A process that ends at once."""
        self.end(signal.SIGKILL, node)

    def stop(self, node: int) -> None:
        """A process that is asked to end."""
        self.end(signal.SIGTERM, node)

    def pause(self, node: int) -> None:
        """A process that stands still, as in a long pause of its garbage collector."""
        self.note("SIGSTOP", nodes=[node])
        self.running[node].send_signal(signal.SIGSTOP)
        self.paused.append(node)

    def resume(self, *nodes: int) -> None:
        """They go on as if nothing had happened. Raises RecorderError."""
        if awake := set(nodes) - set(self.paused):
            raise RecorderError(f"Node {min(awake)} was not paused")
        self.note("SIGCONT", nodes=list(nodes))
        for node in nodes:
            self.running[node].send_signal(signal.SIGCONT)
            self.paused.remove(node)

    def stop_all(self) -> None:
        """Brokers first."""
        if self.paused:
            self.resume(*self.paused)
        for role in (self.ports, self.quorum):
            if left := [node for node in role if node in self.running]:
                self.end(signal.SIGTERM, *left)

    def delete_data(self) -> None:
        """Of all nodes that have ended."""
        for folder in [folder for node in self.nodes for folder in self.log_dirs_of(node)]:
            shutil.rmtree(folder, ignore_errors=True)

    def migrate(self, to: str, brokers: list[int] | None = None) -> None:
        """Only from ZooKeeper. Raises RecorderError."""
        raise RecorderError(f"A cluster in {self.mode} mode cannot be migrated to {to}")

    def break_log_dir(self, node: int) -> None:
        """Puts a file in the place of the last one: what is written to it next fails."""
        folder = self.log_dirs_of(node)[-1]
        self.note(
            "log directory broken",
            node=node,
            directory=folder.name,
            partitions=sorted(p.name for p in folder.glob("*-[0-9]*")),
        )
        folder.rename(folder.with_suffix(".away"))
        folder.touch()

    def mend_log_dir(self, node: int) -> None:
        """Takes that back."""
        folder = self.log_dirs_of(node)[-1]
        if not folder.is_file():
            raise RecorderError(f"The log directory of node {node} was not broken")
        self.note("log directory repaired", node=node, directory=folder.name)
        folder.unlink()
        folder.with_suffix(".away").rename(folder)

    def start(self, *nodes: int, expect: str = "runs") -> None:
        """Starts nodes and waits until their brokers say so, or until they have ended.

        Raises RecorderError.
        """
        self.note("start", nodes=list(nodes))
        for node in nodes:
            self.running[node] = self.spawn(node, f"node-{node}")
        waited = {
            "runs": ("runs", self._accepts),
            "ends": ("has ended", lambda node: self.running[node].poll() is not None),
            "anything": ("was started", lambda _: True),
        }
        what, holds = waited[expect]
        for node in nodes:
            self._until(f"node {node} {what}", lambda node=node: holds(node), STARTED_WITHIN)

    def spawn(self, node: int, name: str) -> subprocess.Popen[bytes]:
        """Start the process whose configuration and logs have a name."""
        folder = self.recording / name
        option, text = log4j_properties(self.version, self.mode, self.level, str(folder))
        config = self.work / f"log4j-{name}.properties"
        config.write_text(text, "utf-8")
        command = self.java(
            class_of(self.jars, "Kafka"),
            str(self.work / f"{name}.properties"),
            options=[f"-D{option}=file:{config}"],
        )
        with (self.work / f"{name}.out").open("ab") as out:
            return subprocess.Popen(
                [*self.machines.around(node), *command],
                stdout=out,
                stderr=out,
                cwd=self.work,
                env=self.machines.environment(node),
            )

    def _accepts(self, node: int) -> bool:
        if self.running[node].poll() is not None:
            raise RecorderError(
                f"Node {node} has ended: {(self.work / f'node-{node}.out').read_text('utf-8', 'replace')[-400:]}"
            )
        return listens((self.quorum | self.ports)[node], self.machines.host(node))

    def _until(self, what: str, holds: Any, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > deadline:
                self.note("not reached", what=what)
                raise RecorderError(f"It was not reached within {seconds:.0f} s that {what}")
            time.sleep(0.5)
        self.note("reached", what=what)

    def end(self, how: signal.Signals, *nodes: int) -> None:
        """Sends a signal and waits for the end; SIGTERM to many at once, as a shutdown does."""
        self.note("SIGTERM" if how == signal.SIGTERM else "kill -9", nodes=list(nodes))
        for node in nodes:
            self.running[node].send_signal(how)
        for node in nodes:
            process = self.running.pop(node)
            self.paused = [one for one in self.paused if one != node]
            try:
                process.wait(60)
                self.note("ended", nodes=[node], rc=process.returncode)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                self.note("kill -9 after timeout", nodes=[node])

    def keep(self, name: str, text: str) -> None:
        """Keeps what a tool printed, numbered."""
        self.outputs += 1
        (self.recording / f"{name.format(self.outputs)}").write_text(text, "utf-8")

    # -- steps -----------------------------------------------------------------------------------------------

    def create(self, topic: str, config: dict[str, str] | None = None, **how: Any) -> None:
        """A topic, with the assignment named or placed by Kafka."""
        if assignment := how.get("assignment"):
            where = ["--replica-assignment", ",".join(":".join(map(str, row)) for row in assignment)]
        else:
            where = [
                "--partitions",
                str(how["partitions"]),
                "--replication-factor",
                str(how["replication_factor"]),
            ]
        overrides = [
            part for name, value in (config or {}).items() for part in ("--config", f"{name}={value}")
        ]
        self.note("create topic", topic=topic, config=config or {}, **how)
        self.tool("TopicCommand", *self.address((2, 2)), "--create", "--topic", topic, *where, *overrides)

    def expand(self, topic: str, partitions: int) -> None:
        """More partitions."""
        self.note("alter partitions", topic=topic, partitions=partitions)
        wanted = ["--topic", topic, "--partitions", str(partitions)]
        self.tool("TopicCommand", *self.address((2, 2)), "--alter", *wanted)

    def fill(self, topic: str, records: int) -> None:
        """Records of 1,000 bytes, acknowledged by the leader."""
        self.note("produce", topic=topic, records=records)
        props = ["--producer-props", f"bootstrap.servers={self.bootstrap}", "acks=1"]
        how = ["--topic", topic, "--num-records", str(records), "--record-size", "1000", "--throughput", "-1"]
        self.tool("ProducerPerformance", *how, *props)

    def reassign(
        self, plan: dict[str, dict[str, list[int]]], throttle: int | None = None, cancel: bool = False
    ) -> None:
        """Executes a plan, or cancels it."""
        partitions = [
            {"topic": topic, "partition": int(partition), "replicas": replicas}
            for topic, rows in plan.items()
            for partition, replicas in rows.items()
        ]
        file = self.recording / f"reassign-plan{self.outputs + 1}.json"
        file.write_text(json.dumps({"version": 1, "partitions": partitions}, indent=1) + "\n", "utf-8")
        action = "--cancel" if cancel else "--execute"
        extra = [] if throttle is None else ["--throttle", str(throttle)]
        self.note(f"reassign {action}", file=file.name, args=extra)
        common = [*self.address((2, 6)), "--reassignment-json-file", str(file)]
        self.keep(
            f"reassign-{{}}-{action[2:]}.txt", self.tool("ReassignPartitionsCommand", *common, action, *extra)
        )

    def delete(self, topic: str) -> None:
        """A topic."""
        self.note("delete topic", topic=topic)
        self.tool("TopicCommand", *self.address((2, 2)), "--delete", "--topic", topic)

    def elect(self, type: str, topic: str | None = None) -> None:
        """A preferred or unclean election of one topic (partition 0) or of all."""
        self.note(f"leader election {type.upper()}", topic=topic)
        self.keep("election-{}.txt", self.elected(type, topic))

    def elected(self, type: str, topic: str | None) -> str:
        """What the tool prints that asks for an election."""
        which = ["--topic", topic, "--partition", "0"] if topic else ["--all-topic-partitions"]
        return self.tool("LeaderElectionCommand", *self.address((2, 4)), "--election-type", type, *which)

    def describe(self) -> None:
        """kafka-topics --describe, kept."""
        self.note("describe")
        self.keep("describe-{}.txt", self.tool("TopicCommand", *self.address((2, 2)), "--describe"))

    def wait(self, until: str) -> None:
        """Until no partition is being reassigned, or all replicas are in sync."""
        ask = {
            "reassigned": self.is_reassigned,
            "in sync": lambda: (
                not self.tool(
                    "TopicCommand", *self.address((2, 2)), "--describe", "--under-replicated-partitions"
                ).strip()
            ),
        }
        if until not in ask:
            raise RecorderError(f"wait: until is {until!r}; known are {', '.join(ask)}")

        def holds() -> bool:
            # a cluster without a controller answers with an error
            with contextlib.suppress(RecorderError):
                return ask[until]()
            return False

        self._until(until, holds, WAITED_FOR)

    def do(self, step: dict[str, Any]) -> None:
        """One step of a scenario."""
        what = {name: value for name, value in step.items() if name != "do"}
        kind = step["do"]
        if what.pop("fault", False):
            self.note("fault")
        if kind in ("kill", "stop", "pause"):
            getattr(self, kind)(self.active_controller() if what["node"] == ANY_NODE[kind] else what["node"])
        elif kind == "start":
            ended = [
                node
                for node in self.nodes
                if node not in self.running or self.running[node].poll() is not None
            ]
            self.start(
                *(ended if what["node"] == ANY_NODE[kind] else [what["node"]]),
                expect=what.get("expect", "runs"),
            )
        elif kind == "resume":
            self.resume(*(self.paused if what["node"] == ANY_NODE[kind] else [what["node"]]))
        elif kind == "break":
            self.break_log_dir(what["node"])
        elif kind == "mend":
            self.mend_log_dir(what["node"])
        elif kind == "sleep":
            self.note("wait", seconds=what["seconds"])
            time.sleep(what["seconds"])
        else:
            getattr(self, kind)(**what)

    def dump(self) -> None:
        """The metadata log of the voter that has the longest, as text, as records, and as partitions."""
        logs = [
            path
            for node in self.quorum
            for path in (self.work / f"data-{node}").glob("__cluster_metadata-0/*.log")
        ]
        if not logs:
            return
        longest = max(logs, key=lambda path: path.stat().st_size)
        text = self.tool("DumpLogSegments", "--cluster-metadata-decoder", "--files", str(longest))
        suffix = f"-{self.incarnation}" if self.wiped else ""
        (self.recording / f"metadata-log{suffix}.txt").write_text(text, "utf-8")
        found = list(metadata_log.records(text.splitlines()))
        for name, rows in (("metadata-log", found), ("timeline", metadata_log.timeline(found))):
            (self.recording / f"{name}{suffix}.jsonl").write_text(
                "".join(json.dumps(row) + "\n" for row in rows), "utf-8"
            )
        self.note("dumped metadata log", file=f"metadata-log{suffix}.txt")


class ZooKeeperCluster(Cluster):
    """Brokers and one ZooKeeper, whose transaction log is the truth.

    Each broker is a controller; those of the scenario run from a migration on.
    """

    mode = "zookeeper"

    def __init__(
        self, version: str, level: str, scenario: dict[str, Any], recording: Path, work: Path
    ) -> None:
        super().__init__(version, level, scenario | {"controllers": []}, recording, work)
        self.quorum = {}
        self.controllers = scenario.get("controllers", [])
        self.without_zookeeper = False
        (self.port,) = free_ports(1)
        self.data = self.work / "zookeeper"
        self.zookeeper: subprocess.Popen[bytes] | None = None
        self.written: list[dict[str, Any]] = []  # in earlier incarnations

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.end_zookeeper()

    def end_zookeeper(self) -> None:
        """If it runs."""
        if self.zookeeper is not None:
            self.zookeeper.kill()
            self.zookeeper.wait()

    def format(self) -> None:
        """Starts ZooKeeper, and writes the brokers' configurations."""
        self.note("format", nodes=self.nodes, brokers=list(self.ports))
        config = self.work / "zookeeper.properties"
        config.write_text(ZOOKEEPER_SERVER.format(data=self.data, port=self.port), "utf-8")
        out = (self.work / "zookeeper.out").open("ab")
        command = self.java("org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config))
        self.zookeeper = subprocess.Popen(command, stdout=out, stderr=out, cwd=self.work)
        self._until("ZooKeeper runs", lambda: listens(self.port), STARTED_WITHIN)
        for node in self.nodes:
            self.write_properties(node, ZOOKEEPER)

    def write_properties(self, node: int, text: str, **values: Any) -> Path:
        return super().write_properties(node, text, zookeeper_port=self.port, **values)

    def format_node(self, properties: Path, cluster_id: str) -> None:
        """Brokers take the id of the cluster from ZooKeeper, but from a migration on.

        A wrong one is of another cluster's disk.
        """
        if self.quorum:
            super().format_node(properties, cluster_id)
        elif cluster_id != self.cluster_id:
            found = re.findall(
                r"^(?:log\.dirs=(.*)|broker\.id=(.*))$", properties.read_text("utf-8"), re.MULTILINE
            )
            folders, node = ("".join(values[place] for values in found) for place in (0, 1))
            for folder in map(Path, folders.split(",")):
                folder.mkdir()
                (folder / "meta.properties").write_text(
                    f"version=0\nbroker.id={node}\ncluster.id={cluster_id}\n", "utf-8"
                )

    def address(self, since: tuple[int, ...]) -> list[str]:
        is_old = numbers(self.version) < since
        return ["--zookeeper", f"127.0.0.1:{self.port}"] if is_old else super().address(since)

    def is_reassigned(self) -> bool:
        if numbers(self.version) >= (2, 6):
            return super().is_reassigned()
        # before there was a list, a plan was a znode, which the controller deletes at the end
        asked = [row for row in self.transactions() if row.get("path") == "/admin/reassign_partitions"]
        return bool(asked) and asked[-1]["op"] == "delete"

    def elected(self, type: str, topic: str | None) -> str:
        if numbers(self.version) >= (2, 4):
            return super().elected(type, topic)
        if type != "preferred" or topic:
            raise RecorderError(
                f"Kafka {self.version} elects preferred leaders of all partitions, and nothing else"
            )
        return self.tool("PreferredReplicaLeaderElectionCommand", *self.address((2, 4)))

    def delete_data(self) -> None:
        super().delete_data()
        self.written = [
            *self.written,
            *self.transactions(),
            {"time": metadata_log.stamp(time.time_ns() // 10**6), "op": "cluster_wiped"},
        ]
        self.end_zookeeper()
        shutil.rmtree(self.data)

    def active_controller(self) -> int:
        """Who wrote /controller last; KRaft's controllers do so, too, as long as they write to ZooKeeper."""
        if self.without_zookeeper:
            return super().active_controller()
        return int(self.last_written("/controller")["brokerid"])

    def last_written(self, path: str) -> dict[str, Any]:
        """What a path was given last; empty: it never was."""
        values = (
            row["value"]
            for row in reversed(self.transactions())
            if row.get("path") == path and "value" in row
        )
        return next((value for value in values if value), {})

    def migrate(self, to: str, brokers: list[int] | None = None) -> None:
        """One of the steps that Kafka describes (KIP-866): each node is stopped in order and started anew,
        one after the other.

        hybrid: controllers of KRaft take over, and write to ZooKeeper, too. kraft: brokers are without
        ZooKeeper. finalized: controllers are, too.
        brokers: those that are restarted; as long as one is not, controllers wait for it.
        """
        self.note("migrate", to=to, **({} if brokers is None else {"brokers": brokers}))
        if to == "hybrid":
            self.mode = "migration"
            self.quorum = dict(zip(self.controllers, free_ports(len(self.controllers)), strict=True))
            self.cluster_id = self.last_written("/cluster/id")["id"]
            for node in self.quorum:
                self.format_node(self.write_properties(node, KRAFT + CONNECT + MIGRATION), self.cluster_id)
            self.start(*self.quorum)
        nodes = self.quorum if to == "finalized" else self.ports
        for node in list(nodes) if brokers is None else brokers:
            self.end(signal.SIGTERM, node)
            self.write_properties(node, ZOOKEEPER + MIGRATION + QUORUM if to == "hybrid" else KRAFT)
            self.start(node)
        self.without_zookeeper = to == "finalized"
        if to == "hybrid" and brokers is None:
            self._until("metadata is migrated", lambda: self.active_controller() in self.quorum, WAITED_FOR)

    def transactions(self) -> list[dict[str, Any]]:
        """All that was written till now."""
        files = sorted(self.data.glob("version-2/log.*"), key=lambda path: int(path.suffix[1:], 16))
        return list(zookeeper_log.writes(b"".join(path.read_bytes() for path in files)))

    def dump(self) -> None:
        """The transaction log, and from a migration on the metadata log, too."""
        if self.quorum:
            super().dump()
        rows = self.written + self.transactions()
        (self.recording / "truth-txn.jsonl").write_text(
            "".join(json.dumps(row) + "\n" for row in rows), "utf-8"
        )
        self.note("dumped ZooKeeper's transaction log", file="truth-txn.jsonl")


MODES = {"kraft": (Cluster, (3, 0), (99,)), "zookeeper": (ZooKeeperCluster, (2, 1), (4,))}


def record(version: str, mode: str, scenario: str, level: str, into: Path) -> Path:
    """The folder of the recording, `<version>-<mode>-<level>/<scenario>`.

    Raises RecorderError; what was recorded till then stays there.
    """
    content = scenario_of(SCENARIOS / f"{scenario}.toml")
    nodes, first, end = MODES[mode]
    if not first <= numbers(version) < end:
        raise RecorderError(
            f"Kafka {version} has no {mode} mode that can be recorded: KRaft from 3.0.0 on, ZooKeeper 2.1.0 to 3.9"
        )
    recording = into / f"{version}-{mode}-{level}" / scenario
    if recording.exists():
        raise RecorderError(f"{recording} is there already; remove it first")
    recording.mkdir(parents=True)
    described = {
        "version": version,
        "mode": mode,
        "level": level,
        "scenario": scenario,
        "java_time_zone": "UTC",
    }
    (recording / "recording.json").write_text(json.dumps(described, indent=1) + "\n", "utf-8")
    with (
        tempfile.TemporaryDirectory(prefix="kafka-recorder-") as work,
        nodes(version, level, content, recording, Path(work)) as cluster,
    ):
        cluster.format()
        cluster.start(*cluster.nodes)
        try:
            for step in content.get("step", []):
                cluster.do(step)
        finally:
            # a step that fails leaves a recording that is shorter
            cluster.stop_all()
            if "fault" not in content:
                cluster.dump()
    for log in recording.glob("node-*/*.log"):
        if not log.stat().st_size:
            log.unlink()
    return recording


def record_fault(scenario: str) -> Path:
    """The archive of the logs of a fault, in FAULTS; beside it the steps, as JSON Lines.

    Raises RecorderError.
    """
    fault = scenario_of(SCENARIOS / f"{scenario}.toml").get("fault")
    if fault is None:
        raise RecorderError(f"The scenario {scenario} has no [fault]")
    with tempfile.TemporaryDirectory(prefix="kafka-recorder-") as name:
        recording = record(fault["kafka"], fault["mode"], scenario, "default", Path(name))
        packed = FAULTS / f"{scenario}.tar.xz"
        with tarfile.open(packed, "w:xz", preset=9) as archive:
            for log in sorted(recording.glob("node-*/*.log")):
                member = tarfile.TarInfo(str(log.relative_to(recording)))
                member.size = log.stat().st_size
                with log.open("rb") as content:
                    archive.addfile(member, content)
        shutil.copyfile(recording / "steps.jsonl", FAULTS / f"{scenario}.jsonl")
    return packed


# -- checking ------------------------------------------------------------------------------------------------


def unknown_statements(recording: Path) -> Iterator[tuple[str, int, str]]:
    """(drifted or unrecognised, how often, an example) of each statement of loggers in scope that no rule
    reads.
    """
    from logs import PARSER, records

    counts: Counter[tuple[str, str, str]] = Counter()
    examples: dict[tuple[str, str, str], str] = {}
    for log in sorted([*recording.glob("node-*/*.log*"), *recording.glob("metadata-log*.txt")]):
        for _, text in records(log.read_text("utf-8", "replace").splitlines()):
            found = PARSER.record(text)
            if found is None or not PARSER.in_scope(found):
                continue
            for said in PARSER.events(found):
                if said["event_type"] is None:
                    line = text.splitlines()[0]
                    masked = re.sub(r"\d+", "N", re.sub(r"^\[[^\]]*\] ", "", line))
                    key = ("drifted" if said.get("drifted") else "unrecognised", found.logger, masked)
                    counts[key] += 1
                    examples.setdefault(key, line)
    for key, count in counts.most_common():
        yield key[0], count, examples[key]


def check(recording: Path) -> bool:
    """Prints how the timelines of its logs stand against its truth, and what no rule reads.

    Whether all is well.
    """
    import truth
    from logs import events_of
    from timelines import timelines_of

    files = {
        str(path.relative_to(recording.parent)): path.read_text("utf-8", "replace")
        for path in sorted(recording.glob("node-*/*.log*"))
    }
    found = truth.compare(recording, timelines_of(events_of(files)).rows())
    print(truth.table([found]))
    print(truth.details(found))
    unknown = list(unknown_statements(recording))
    for kind, count, example in unknown:
        print(f"{kind}, {count} times: {example[:300]}")
    if not unknown:
        print("Every statement of the loggers in scope is known.")
    return found.precise and not unknown


def main(arguments: Sequence[str] | None = None) -> int:
    """0: recorded, and all is well; 1: recorded, but see what is printed; 2: not recorded."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kafka", metavar="VERSION")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--scenario", metavar="NAME", help=f"a file of {SCENARIOS.relative_to(ROOT)}")
    what.add_argument(
        "--fault",
        metavar="NAME",
        help="a scenario with a fault, with the version and mode that it names; packed",
    )
    parser.add_argument("--mode", choices=list(MODES), default="kraft")
    parser.add_argument(
        "--level",
        choices=["default", "trace"],
        default="default",
        help="levels of the loggers (trace: DEBUG and TRACE)",
    )
    parser.add_argument("--into", type=Path, default=Path("recordings"), metavar="DIR")
    options = parser.parse_args(arguments)
    try:
        if options.fault:
            print(f"Recorded {record_fault(options.fault)}", file=sys.stderr)
            return 0
        if not options.kafka:
            parser.error("--scenario needs --kafka")
        recording = record(
            options.kafka, options.mode, options.scenario, options.level, options.into.resolve()
        )
    except RecorderError as error:
        print(f"record: {error}", file=sys.stderr)
        return 2
    print(f"Recorded {recording}", file=sys.stderr)
    return 0 if check(recording) else 1


if __name__ == "__main__":
    shutil.which("java") or sys.exit("record: java is not installed")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("record: ended"))  # nodes are ended, too
    sys.exit(main())
