"""A list streamed through to(), map(), async_map() and filter(), its throughput logged to MLflow.

    python examples/python/log_throughput.py [FOLDER]      MLflow's data base goes there; ./mlflow by default

Needs `pip install mlflow` (or mlflow-skinny, sqlalchemy and alembic). To look at the run:
`mlflow ui --backend-store-uri sqlite:///mlflow/mlflow.db`.
"""

import itertools
import sys
import time
from pathlib import Path

import mlflow

from squirrel.iterstream import IterableSource


def numbered(samples):
    """A stage of one's own, for to(): any function from an iterable to an iterable."""
    for number, sample in enumerate(samples):
        yield {"number": number, **sample}


def fetch(sample):
    """Stands for what waits for a disk or a network."""
    time.sleep(0.002)
    return {**sample, "words": len(sample["text"].split())}


def every(n, log):
    """monitor() calls back for each sample; a data base need not hear of all."""
    count = itertools.count(1)

    def callback(metrics):
        step = next(count)
        if step % n == 0:
            log(metrics, step=step)

    return callback


def main(folder):
    folder = Path(folder).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    mlflow.set_experiment("streams")
    samples = [{"text": "the quick brown fox " * (i % 5)} for i in range(500)]
    with mlflow.start_run(run_name="throughput") as run:
        kept = (
            IterableSource(samples)
            .to(numbered)
            .map(lambda sample: {**sample, "text": sample["text"].strip()})
            .async_map(fetch, buffer=16, max_workers=8)
            .filter(lambda sample: sample["words"] > 0)
            .monitor(callback=every(50, mlflow.log_metrics), prefix="stream/", window_size=100)
            .collect()
        )
        mlflow.log_param("samples", len(samples))
    assert [sample["number"] for sample in kept] == [i for i in range(500) if i % 5]  # in order, none lost
    logged = mlflow.get_run(run.info.run_id).data.metrics
    print(f"{len(kept)} of {len(samples)} samples kept")
    for name in sorted(logged):
        print(f"{name}: {logged[name]:.6g}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "mlflow")
