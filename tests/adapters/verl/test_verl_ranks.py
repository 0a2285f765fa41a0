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
CASES = [("gae", "steppo", "trajectory"), ("gae", "capo", "row"), ("grpo", "vanilla", "token")]


def main(rank, ranks, model_path, out, layouts=LAYOUTS):
    """One rank: gradients of two mini-batches of actor and critic for every case, into ``out``."""
    import torch
    from local_training import build_worker
    from toy_episodes import drawn_episodes
    from worker_gradients import Made, actor_config, critic_config, gradients, objective, rows_of

    torch.set_num_threads(1)
    workers = {
        trees: [build_worker(model_path, kind, trees=trees) for kind in ("language_model", "value_model")]
        for trees in {layout == "tree" for layout in layouts}
    }
    results = {}
    for layout, (estimator, loss, weighting) in product(layouts, CASES):
        trees = layout == "tree"
        actor, critic = workers[trees]
        rows = rows_of(drawn_episodes(11, "mixed"), merge=layout != "steps")
        made = Made(rows, actor, critic, rank, ranks=ranks, mini_batches=2, trees=trees)
        columns, result = made.columns(objective(estimator, weighting), actor_batches=2, critic_batches=2)
        both = {}
        for role, worker, config in (("actor", actor, actor_config(loss)), ("critic", critic, critic_config())):
            both[role] = gradients(
                worker, made.batch, columns, role, config, mini_batches=2, micro_tokens=120, rank=rank
            )
        held = [fields["kind"] for fields in made.batch.extra]
        results[layout, loss] = {"updates": both, "kinds": held, "metrics": result.metrics}
    if rank == 0:
        torch.save(results, out)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_ranks_and_layouts_change_nothing(model_path, tmp_path, root, process_group):
    import torch
    from comparisons import relative

    processes = []
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    for rank in ("0", "1"):
        path = os.pathsep.join([str(root), str(root / "tests" / "adapters")])
        variables = {
            **os.environ, "WORLD_SIZE": "2", "RANK": rank, "LOCAL_RANK": rank, "MASTER_PORT": port, "PYTHONPATH": path,
        }  # fmt: skip
        log = (tmp_path / f"{rank}.log").open("w")
        command = [sys.executable, __file__, rank, "2", model_path, str(tmp_path / "2.pt")]
        processes.append((subprocess.Popen(command, env=variables, stdout=log, stderr=log), log))
    try:
        main(0, 1, model_path, tmp_path / "1.pt", LAYOUTS[:1])
        for process, log in processes:
            assert process.wait(timeout=240) == 0, Path(log.name).read_text()[-3000:]
    finally:
        for process, log in processes:
            process.kill()
            process.wait()
            log.close()
    one, two = (torch.load(tmp_path / f"{ranks}.pt") for ranks in (1, 2))
    for estimator, loss, _ in CASES:
        expected = one["steps", loss]
        assert "padding" in two["steps", loss]["kinds"] + two["merged", loss]["kinds"]
        for found in (two[layout, loss] for layout in LAYOUTS):
            assert found["metrics"] == pytest.approx(expected["metrics"], rel=1e-5, abs=1e-6)
            for role in ("actor", "critic"):
                (g1, m1), (g2, m2) = expected["updates"][role], found["updates"][role]
                assert m2 == pytest.approx(m1, rel=1e-5, abs=1e-6), (role, loss)
                assert len(g1) == len(g2) == 2 and len(g1[0]) > 10
                assert max(map(relative, g2, g1)) <= 1e-5, (role, estimator, loss)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
