"""Layers in models that two processes train: DistributedDataParallel and FSDP2, on gloo."""

import subprocess
import sys
from pathlib import Path

import pytest
from processes import ENVIRONMENT

torch = pytest.importorskip("torch", reason="PyTorch is not installed.")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("this PyTorch has no gloo: no tests of processes.", allow_module_level=True)

import torch_workers as workers

WORLD = 2
# imports take most of it; processes that wait for each other end by themselves before
LIMIT = 120

@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What each process found in each case."""
    folder = tmp_path_factory.mktemp("processes")
    script = str(Path(workers.__file__).resolve())
    running = [
        subprocess.Popen(
            [sys.executable, script, str(rank), str(WORLD), str(folder)], env=ENVIRONMENT,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for rank in range(WORLD)]
    try:
        said = [process.communicate(timeout=LIMIT)[0] for process in running]
    except subprocess.TimeoutExpired:
        pytest.fail(f"two processes did not end within {LIMIT} seconds.")
    finally:
        for process in running:
            process.kill()
            process.wait()
    if any("init_process_group" in text and "Error" in text for text in said):
        pytest.skip(f"two processes do not meet on gloo here: {said[0].splitlines()[-1]}")
    assert not any(process.returncode for process in running), "\n".join(said)
    return [torch.load(folder / f"{rank}.pt") for rank in range(WORLD)]


def of_case(found, name):
    each = [one[name] for one in found]
    assert all(isinstance(one, dict) for one in each), "\n".join(map(str, each))
    return each


@pytest.mark.parametrize("name", workers.MODELS)
@pytest.mark.parametrize("wrapper", ["distributed", "sharded"])
def test_two_processes_train_as_one_does(wrapper, name, found):
    alone = workers.train("alone", name)
    each = of_case(found, f"{wrapper} {name}")
    for one in each:
        torch.testing.assert_close(one["gradients"], alone["gradients"])
        torch.testing.assert_close(one["parameters"], alone["parameters"])
    labels = [None] * workers.B
    for rank, one in enumerate(each):
        labels[rank::WORLD] = one["labels"]
    assert labels == alone["labels"]


def test_constraints_of_a_layer_that_was_sharded_without_memory(found):
    x, _, mask = workers.batch()
    for one in of_case(found, "on meta"):
        model = workers.model_of("allowed")
        model.load_state_dict(one["state"])
        assert one["labels"] == model.decode(10 * x, mask).tolist()
        free = workers.model_of("log")
        free.load_state_dict(one["state"])
        assert one["labels"] != free.decode(10 * x, mask).tolist()
