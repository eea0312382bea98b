import os
import signal
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from softmask.data.synthetic import motif
from softmask.errors import SettingError, StudyInterrupted
from softmask.study.ask import ask
from softmask.study.executors import Local
from softmask.study.ray_cluster import check, import_ray
from softmask.study.ray_executor import OnRay
from softmask.study.record import read_record
from softmask.study.settings import Settings
from softmask.study.trial import Job, Trial
from softmask.study.work import Work

slow = pytest.mark.slow
STORE = motif(num_graphs=40, seed=0)
QUICK = Settings(hidden=8, layers=2, epochs=30, batch_size=16)


def needs_ray():
    # Not imported here: how Ray is imported is part of what is tested.
    if find_spec("ray") is None:
        pytest.skip("ray is not installed: pip install 'softmask[ray]'")


@pytest.fixture(scope="module")
def two_machines():
    """A cluster of two nodes with one core each; this machine plays both."""
    needs_ray()
    import_ray()
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "num_gpus": 0, "object_store_memory": 200 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    cluster.add_node(**node)
    yield cluster
    cluster.shutdown()


@pytest.fixture(scope="module")
def joined(two_machines):
    """The same, with this process connected all the time, so that the workers need not start for every test."""
    import ray

    ray.init(address=two_machines.address, log_to_driver=False, logging_level=50)
    yield two_machines
    ray.shutdown()


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """What the study gives without Ray."""
    return study(tmp_path_factory.mktemp("local")).run(Local(["cpu"]))


def study(folder, **options):
    return ask(STORE, QUICK, "both", folds=2, repeats=1, jobs=4, folder=folder, **options)


def assert_equal(record, other):
    assert list(record.metrics) == list(other.metrics)
    for name, column in other.metrics.items():
        np.testing.assert_array_equal(record.metrics[name], column, err_msg=name)
    assert record.result["figures"] == other.result["figures"]
    assert sorted(record.jobs) == sorted(other.jobs)


def running(cluster):
    """Processes of the cluster's workers that are at a job now, by the name of the job."""
    raylets = [node.all_processes["raylet"][0].process.pid for node in cluster.list_all_nodes()]
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            title = (place / "cmdline").read_bytes().rstrip(b"\0").decode(errors="replace")
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if title.startswith("ray::softmask ") and parent in raylets:
            found[title.removeprefix("ray::softmask ").strip()] = int(place.name)
    return found


@slow
def test_the_record_is_that_of_a_local_study_and_nothing_is_printed(two_machines, local, tmp_path, capfd):
    capfd.readouterr()
    record = study(tmp_path, weights=True).run(OnRay(two_machines.address))
    assert capfd.readouterr() == ("", "")
    assert_equal(record, local)
    for name, job in record.jobs.items():
        assert {p.name for p in (tmp_path / "jobs" / name).iterdir()} == {
            *("metrics.parquet", "weights.safetensors", "done.json")
        }
        assert (job["replicas"], job["device"]) == (local.jobs[name]["replicas"], "cpu")


@slow
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="finds the worker in /proc")
@pytest.mark.parametrize("retries", [0, 3])
def test_a_killed_worker_costs_time_but_no_results(joined, local, tmp_path, capfd, retries):
    killed = []

    def kill_one(stage, finished, jobs, epoch, epochs):
        # By now a worker has done a job, so it is warm, and busy with the next.
        for name, pid in running(joined).items():
            if finished and not killed and not (tmp_path / "jobs" / name / "done.json").exists():
                os.kill(pid, signal.SIGKILL)
                killed.append(name)

    capfd.readouterr()
    if retries == 0:
        with pytest.raises(SettingError, match=r"job both-0-\d .* its worker died each time .*are kept"):
            study(tmp_path).run(OnRay(joined.address, retries=0), kill_one)
        assert killed
        assert not (tmp_path / "jobs" / killed[0] / "done.json").exists()
        return
    assert_equal(study(tmp_path).run(OnRay(joined.address, retries=retries), kill_one), local)
    assert killed
    # Ray itself may have a line to say of the worker that died, early or late; we have none.
    said = "".join(capfd.readouterr()).splitlines()
    assert all("(raylet)" in line or not line.strip() for line in said)


@slow
def test_half_by_local_and_the_rest_by_ray(joined, local, tmp_path):
    with pytest.raises(StudyInterrupted):
        study(tmp_path).run(Local(["cpu"]), lambda stage, finished, jobs, epoch, epochs: finished == 2 and epoch == 20)
    before = read_record(tmp_path)
    assert sorted(before.jobs) == ["both-0-0", "both-0-1"]
    left = {p.name for p in (tmp_path / "jobs" / "both-0-2").iterdir()}
    assert "spent.json" in left
    record = study(tmp_path).run(OnRay(joined.address))
    assert_equal(record, local)
    assert {name: record.jobs[name] for name in before.jobs} == before.jobs
    assert {p.name for p in (tmp_path / "jobs" / "both-0-2").iterdir()} == {"metrics.parquet", "done.json"}


@slow
def test_an_interrupted_study_keeps_finished_jobs_and_leaves_nothing_running(joined, local, tmp_path):
    with pytest.raises(StudyInterrupted):
        study(tmp_path).run(OnRay(joined.address), lambda stage, finished, jobs, epoch, epochs: finished >= 1)
    done = sorted(p.parent.name for p in (tmp_path / "jobs").glob("*/done.json"))
    assert 1 <= len(done) < 4
    # On a busy machine a worker that was ended may take a moment to go.
    waited = time.monotonic() + 60
    while running(joined) and time.monotonic() < waited:
        time.sleep(0.2)
    assert running(joined) == {}
    assert_equal(study(tmp_path).run(Local(["cpu"])), local)


@slow
def test_a_refused_job_reports_its_error(joined, tmp_path):
    work = Work(tmp_path, "", [QUICK], "classification", "float7", None, False)
    job = Job("refused", (Trial("paper", 0, 0, 0, 0, seed=1, epochs=1, train=np.arange(20)),))
    with pytest.raises(SettingError) as here:
        work.run(job, STORE, "cpu")
    with pytest.raises(SettingError) as there:
        OnRay(joined.address).run(work, [job], STORE, lambda finished, epoch: None)
    assert type(there.value) is type(here.value)
    assert str(there.value) == str(here.value)
    assert not work.done(job)


@slow
def test_what_no_machine_has_is_not_waited_for(joined, tmp_path):
    with pytest.raises(SettingError, match="1 cores and 1 GPUs, and no machine"):
        study(tmp_path).run(OnRay(joined.address, "cuda"))
    with pytest.raises(SettingError, match=r"99 cores .*the most are 1 cores and 0 GPUs on one of 2 machines"):
        study(tmp_path).run(OnRay(joined.address, cpus=99))
    with pytest.raises(SettingError, match=r"connected to the Ray cluster at .* already, not to 127\.0\.0\.1:1"):
        study(tmp_path).run(OnRay("127.0.0.1:1"))


@slow
@pytest.mark.parametrize("silent", [False, True])
def test_an_address_that_does_not_answer(silent):
    needs_ray()
    # Waits less for a port that is open but says nothing; how long it waits by itself is for the reader to see.
    code = """if True:
        import sys
        from softmask.errors import SettingError
        from softmask.study import ray_cluster
        assert ray_cluster._PORT_S + ray_cluster._JOIN_S < 30
        ray_cluster._JOIN_S = 2.0
        try:
            with ray_cluster.cluster(sys.argv[1], 2**20):
                pass
        except SettingError as error:
            print(error)
    """
    with socket.socket() as port:
        port.bind(("127.0.0.1", 0))
        if silent:
            port.listen()
        address = f"127.0.0.1:{port.getsockname()[1]}"
        ended = subprocess.run(
            [sys.executable, "-c", code, address], timeout=30, capture_output=True, text=True, check=True
        )
    assert ended.stderr == ""
    expected = "no Ray cluster let this machine in at" if silent else "no Ray cluster answers at"
    assert ended.stdout.startswith(f"{expected} {address}")


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("RPC error: Unauthenticated: InvalidAuthToken", "asks for a token: set RAY_AUTH_MODE=token"),
        ("because: Version mismatch:\n Ray: 2.1\n see /home/me/ray.log", ": Version mismatch: Ray: 2.1 see a file$"),
        ("because: Failed to connect to Ray cluster", "must be part of the cluster itself"),
        ("Segmentation fault", "must be part of the cluster itself"),
    ],
)
@pytest.mark.parametrize("hangs", [False, True])
def test_why_a_cluster_cannot_be_joined(monkeypatch, said, message, hangs):
    def join(command, timeout, **_):
        if hangs:
            raise subprocess.TimeoutExpired(command, timeout, stderr=said.encode())
        return subprocess.CompletedProcess(command, 1, b"", said.encode())

    monkeypatch.setattr(subprocess, "run", join)
    with socket.create_server(("127.0.0.1", 0)) as port, pytest.raises(SettingError, match=message):
        check(f"127.0.0.1:{port.getsockname()[1]}")


@pytest.mark.parametrize("address", ["", "head", "head:", ":6379", "head:port", "head:70000", "ray://head:10001"])
def test_what_is_no_address(address):
    with pytest.raises(SettingError, match=r"is no address of a Ray cluster: give HOST:PORT"):
        check(address)


def test_without_ray(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SettingError, match=r"pip install 'softmask\[ray\]'"):
        study(tmp_path).run(OnRay())
    assert not (tmp_path / "study.json").exists()


@pytest.mark.parametrize("options", [{"device": "cuda:0"}, {"cpus": 0}, {"retries": -1}])
def test_bad_options(options):
    with pytest.raises(SettingError):
        OnRay(**options)
