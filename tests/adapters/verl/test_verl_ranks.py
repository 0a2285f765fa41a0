"""Two data-parallel ranks over gloo: trees, merged rows, one row per step and a single rank give the same gradients.

Each of the two ranks is a process that runs this file; the single one is this process.
"""

import os
import socket
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

LAYOUTS = ("steps", "merged", "tree")
CASES = [
    *product(
        ("mixed",), LAYOUTS, (("gae", "steppo", "trajectory"), ("gae", "capo", "row"), ("grpo", "vanilla", "token"))
    ),
    *product(("grow",), LAYOUTS, (("gae", "steppo", "trajectory"),)),
]


def main(rank, ranks, model_path, out):
    """One rank: gradients of two mini-batches of actor and critic for every case, into ``out``."""
    import torch
    from local_training import build_worker
    from test_verl_losses import Made, actor_config, critic_config, gradients, objective, play, rows_of

    torch.set_num_threads(1)
    workers = {
        trees: [build_worker(model_path, kind, trees=trees) for kind in ("language_model", "value_model")]
        for trees in (False, True)
    }
    results = {}
    for contexts, layout, (estimator, loss, weighting) in CASES:
        trees = layout == "tree"
        actor, critic = workers[trees]
        rows = rows_of(play(11, contexts), merge=layout != "steps")
        made = Made(rows, actor, critic, rank, ranks=ranks, mini_batches=2, trees=trees)
        columns, result = made.columns(objective(estimator, weighting), actor_batches=2, critic_batches=2)
        both = {}
        for role, worker, config in (("actor", actor, actor_config(loss)), ("critic", critic, critic_config())):
            both[role] = gradients(
                worker, made.batch, columns, role, config, mini_batches=2, micro_tokens=120, rank=rank
            )
        held = [fields["kind"] for fields in made.batch.extra]
        results[contexts, layout, estimator] = {"updates": both, "kinds": held, "metrics": result.metrics}
    if rank == 0:
        torch.save(results, out)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore")
def test_ranks_and_layouts_change_nothing(tmp_path, root, process_group):
    torch = pytest.importorskip("torch")
    pytest.importorskip("verl")
    from agent_envs.adapters.tiny.model import save_model
    from benchmarks.pretraining.model import build_model
    from benchmarks.pretraining.tokenizer import build_tokenizer

    tokenizer = build_tokenizer(["some words to learn"])
    save_model(build_model(tokenizer, hidden_size=32, intermediate_size=64), tokenizer, tmp_path / "model")
    processes = []
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    for rank in ("0", "1"):
        path = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
        variables = {
            **os.environ, "WORLD_SIZE": "2", "RANK": rank, "LOCAL_RANK": rank, "MASTER_PORT": port, "PYTHONPATH": path,
        }  # fmt: skip
        log = (tmp_path / f"{rank}.log").open("w")
        command = [sys.executable, __file__, rank, "2", str(tmp_path / "model"), str(tmp_path / "2.pt")]
        processes.append((subprocess.Popen(command, env=variables, stdout=log, stderr=log), log))
    try:
        main(0, 1, str(tmp_path / "model"), tmp_path / "1.pt")
        for process, log in processes:
            assert process.wait(timeout=240) == 0, Path(log.name).read_text()[-3000:]
    finally:
        for process, log in processes:
            process.kill()
            process.wait()
            log.close()
    one, two = (torch.load(tmp_path / f"{ranks}.pt") for ranks in (1, 2))
    for contexts, _, (estimator, _, _) in CASES:
        expected = one[contexts, "steps", estimator]
        assert "padding" in two[contexts, "steps", estimator]["kinds"] + two[contexts, "merged", estimator]["kinds"]
        for got in [found[contexts, layout, estimator] for found in (one, two) for layout in LAYOUTS]:
            assert got["metrics"] == pytest.approx(expected["metrics"], rel=1e-5, abs=1e-6)
            for role in ("actor", "critic"):
                (g1, m1), (g2, m2) = expected["updates"][role], got["updates"][role]
                assert m2 == pytest.approx(m1, rel=1e-5, abs=1e-6)
                assert len(g1) == len(g2) == 2
                for a, b in zip(g1, g2, strict=True):
                    assert a.keys() == b.keys() and len(a) > 10
                    for name in a:
                        norm = float(a[name].double().norm())
                        where = f"{role}, {name}, {contexts}, {estimator}"
                        assert float((a[name].double() - b[name].double()).norm()) <= 1e-5 * norm, where


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
