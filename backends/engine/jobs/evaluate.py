"""The program of an evaluation: `python -m backends.engine.jobs.evaluate JSON`."""

from pathlib import Path

from backends.child.cpu import usable_threads
from backends.engine.evaluation.report import Report
from backends.engine.evaluation.texts import builtin_texts, read_texts
from backends.engine.jobs.messages import EvaluationJob, Progress
from backends.engine.jobs.program import Tell, run
from backends.engine.weights.take_inventory import take_inventory


def _evaluate(job: EvaluationJob, tell: Tell) -> Report:
    path = Path(job.path)
    # What is wrong with the files is known before torch is loaded.
    take_inventory(path)
    texts = read_texts(job.texts) if job.texts else builtin_texts()
    from backends.engine.evaluation.evaluate import evaluate

    return evaluate(
        path,
        texts,
        job.choices,
        tokens=job.tokens,
        threads=job.threads or usable_threads(),
        tell=lambda done, total, what: tell(Progress(done, total, what)),
    )


if __name__ == "__main__":
    run(EvaluationJob, _evaluate)
