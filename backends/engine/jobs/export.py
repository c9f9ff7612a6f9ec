"""The program of an export: `python -m backends.engine.jobs.export JSON`."""

from pathlib import Path

from backends.engine.jobs.messages import Exported, ExportJob, Progress
from backends.engine.jobs.program import JobError, Tell, run
from backends.engine.weights.take_inventory import take_inventory


def _export(job: ExportJob, tell: Tell) -> Exported:
    path, folder = Path(job.path), Path(job.folder)
    take_inventory(path)  # what is wrong with the files is known before torch is loaded
    from backends.engine.export import ExportError, ExportOptions, export_folder
    from backends.engine.tokenizers.export import write_tokenizer
    from backends.engine.tokenizers.load import load_tokenizer
    from backends.engine.weights.open_source import open_source

    vocabulary = load_tokenizer(path)
    first = [vocabulary.eos] if vocabulary.eos in vocabulary.end_tokens else []
    options = ExportOptions(
        dtype=job.dtype,
        bos=vocabulary.bos if vocabulary.bos >= 0 else None,
        eos=(*first, *sorted(vocabulary.end_tokens.difference(first))),
        write_tokenizer=lambda target: write_tokenizer(path, target),
        progress=lambda done, total: tell(Progress(done, total, "weights")),
    )
    source = open_source(path)
    try:
        export_folder(source, folder, options)
    except ExportError as error:
        raise JobError(str(error)) from error
    finally:
        source.close()
    sizes = [file.stat().st_size for file in folder.iterdir()]
    return Exported(files=len(sizes), size_bytes=sum(sizes))


if __name__ == "__main__":
    run(ExportJob, _export)
