"""squirrel.pack: samples from anywhere into shards."""

from __future__ import annotations

import os
from typing import NamedTuple

from squirrel import _native
from squirrel._errors import ArgumentError
from squirrel._progress import Progress
from squirrel.stream import Stream, _bytes, open

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from os import PathLike
    from typing import Any

__all__ = ["PackReport", "pack"]


class PackReport(NamedTuple):
    """What a pack wrote.

    Attributes:
        samples: samples written.
        shards: files written.
        raw_bytes: MessagePack bytes before compression.
        file_bytes: bytes of the files.
        failed: (index, text of the error) of each input or sample that was skipped.
    """

    samples: int
    shards: int
    raw_bytes: int
    file_bytes: int
    failed: list[tuple[int, str]]


def pack(
    source: Iterable[Any] | str | PathLike[str],
    destination: str | PathLike[str],
    *,
    map: Callable[[Any], Any] | None = None,
    workers: int | None = None,
    resume: bool = False,
    on_error: str = "raise",
    overwrite: bool = False,
    append: bool = False,
    format: str | None = None,
    samples_per_shard: int | None = None,
    shard_bytes: int | str | None = None,
    block_bytes: int | str | None = None,
    prefix: str | None = None,
    key: str | Callable[[Any], str | bytes | int] | None = None,
    index: Sequence[str] | None = None,
    groups: dict[str, Sequence[str]] | None = None,
    progress: bool | None = None,
    inputs_per_task: int | None = None,
    start_method: str | None = None,
    **options: Any,
) -> PackReport:
    """Writes samples into shards and commits them in one step at the end.

    Args:
        source: an iterable of samples (dicts of str, int, float, bool, None, bytes, lists,
            dicts, NumPy arrays and scalars); a stream; or the URL of a data set. With `map`:
            inputs of any kind.
        destination: a directory, or one file where the name ends in a format's suffix
            ("out.jsonl.gz").
        map: makes samples of one input: returns one sample, an iterable of samples, or None.
        workers: run `map` in this many processes, each of which writes shards of its own. The
            data set is the same for any number of workers. `map` must be importable by name.
        resume: with workers: continue a pack that was killed; its inputs must be the same. No
            input's samples are lost or written twice. A pack that was finished is not done
            again: its report comes back when the inputs are the same (texts, bytes, numbers,
            paths, arrays, and tuples, lists or dicts of them).
        on_error: "raise" ends at the first input (or sample) that fails; "skip" leaves it out
            and lists it in the report.
        overwrite: replace what the destination holds.
        append: add to what the destination holds.
        format: of the shards; by default from the destination's suffix, else "sqrl".
        samples_per_shard, shard_bytes, block_bytes: sizes; the default shard has 256 MiB of raw
            bytes.
        key: the field (dotted name) that finds a sample later, ``source["key"]``: a text, bytes
            or an integer. Or a function of the sample; what it returns becomes the field
            ``__key__``.
        index: fields (numbers, booleans, texts) that are stored as columns, too, to be tested
            without reading samples.
        groups: fields that are kept in shards of their own, ``{"images": ["image"], "labels":
            ["label", "patient"]}``: a stream that selects fields reads only the groups that have
            them. Fields in no group go to one named ``rest``. All samples must be dicts.
        prefix: of the shards' names; random by default, so that many may write at once.
        progress: None shows a bar on a terminal, True also plain lines elsewhere, False nothing.
        inputs_per_task: with workers: how many inputs are done and noted as one piece.
        start_method: with workers: "forkserver" (default), "spawn" or "fork".
        **options: the format's write options, e.g. ``codec="lz4"``, ``level=9``, and those of the
            destination's file system (``endpoint="http://127.0.0.1:9000"`` for ``s3://bucket/x``);
            ``storage_options={...}`` with the names of s3fs, gcsfs and adlfs, too.

    Raises:
        ExistsError: the destination holds data, and neither overwrite nor append is given.
        SampleTypeError: a sample holds what can't be stored; the note names field and sample.
    """
    if on_error not in ("raise", "skip"):
        raise ArgumentError(f'on_error must be "raise" or "skip", not {on_error!r}')
    if map is None and (workers is not None or resume):
        raise ArgumentError("workers and resume need map=, the function that runs in parallel")
    if overwrite and append:
        raise ArgumentError("overwrite and append exclude each other")
    if callable(key):
        if map is not None:
            raise ArgumentError("key= is the name of a field where map= makes the samples")
        source = _with_keys(source, key)
        key = "__key__"
    destination = os.fspath(destination)
    options = {**_storage(destination, options.pop("storage_options", None)), **options}
    options = {**options, "key": key, "index": ",".join(index) if index else None}
    options = {name: value for name, value in options.items() if value is not None}
    layout: dict[str, Any] = {
        "options": options or None,
        "format": format,
        "samples_per_shard": samples_per_shard or 0,
        "shard_bytes": _bytes(shard_bytes or 0),
        "block_bytes": _bytes(block_bytes or 0),
    }
    if groups:
        layout["groups"] = {name: list(fields) for name, fields in groups.items()}
    if map is not None and (workers is not None or resume):
        from squirrel._pack_parallel import pack_parallel

        if prefix is not None:
            raise ArgumentError("prefix can't be chosen with workers: each task has its own")
        if workers is not None and workers < 1:
            raise ArgumentError(f"workers must be at least 1, not {workers}")
        return pack_parallel(
            source,
            destination,
            map,
            workers or 1,
            layout,
            resume=resume,
            skip=on_error == "skip",
            overwrite=overwrite,
            append=append,
            progress=progress,
            inputs_per_task=inputs_per_task,
            start_method=start_method,
        )
    packer = _native.Packer(
        destination, overwrite=overwrite, append=append, prefix=prefix, **layout
    )
    try:
        return _pack_here(source, packer, map, on_error == "skip", progress)
    except BaseException:
        packer.abandon()
        remove_empty(destination)
        raise


def _storage(destination: str, storage_options: Any) -> dict[str, Any]:
    """fsspec's options as the library's."""
    from squirrel._remote import own_system
    from squirrel._storage_options import native_options

    if not storage_options:
        return {}
    system = own_system(destination, storage_options)
    options = native_options(system, storage_options) if system is not None else None
    if options is None:
        raise ArgumentError("the library does not write there itself with these storage_options", where=destination)
    return options


def remove_empty(destination: str) -> None:
    """Removes the folder of commits where a pack that failed has left it empty."""
    try:
        os.rmdir(os.path.join(destination.removeprefix("file://"), "_sqrl"))
    except OSError:  # not there, or not empty
        pass


def _with_keys(source: Any, key: Callable[[Any], Any]) -> Iterable[Any]:
    samples = open(source) if isinstance(source, (str, os.PathLike)) else source
    return ({**sample, "__key__": key(sample)} for sample in samples)


def _length(source: Any) -> int | None:
    try:
        return len(source)
    except TypeError:
        return None


def _pack_here(
    source: Any,
    packer: _native.Packer,
    function: Callable[[Any], Any] | None,
    skip: bool,
    progress: bool | None,
) -> PackReport:
    if isinstance(source, (str, os.PathLike)):
        source = open(source)
    failed: list[tuple[int, str]] = []
    total = _length(source)
    bar = Progress(progress, total, "samples" if function is None else "inputs")
    tell = bar if bar.enabled else None
    if function is not None:
        for index, item in enumerate(source):
            add_input(packer, function, index, item, failed if skip else None)
            if tell is not None:
                tell(index + 1, 0)
    elif isinstance(source, Stream):
        if source._plan.batched:
            raise ArgumentError("pack takes samples, not batches: leave batch() out")
        packer.extend_plan(source._plan, tell)
    else:
        packer.extend(source, tell, _skipper(failed) if skip else None)
    report = packer.finish()
    bar.end(total if function is not None and total else report["samples"], report["file_bytes"])
    return make_report(report, failed)


def make_report(report: dict[str, int], failed: list[tuple[int, str]]) -> PackReport:
    return PackReport(
        report["samples"], report["shards"], report["raw_bytes"], report["file_bytes"], failed
    )


def error_text(error: BaseException) -> str:
    """One line: type, text and notes."""
    notes = "; ".join(getattr(error, "__notes__", ()))
    return f"{type(error).__name__}: {error}" + (f" ({notes})" if notes else "")


def _skipper(failed: list[tuple[int, str]]) -> Callable[[int, Exception], None]:
    def skip(index: int, error: Exception) -> None:
        failed.append((index, error_text(error)))

    return skip


def add_input(
    packer: _native.Packer,
    function: Callable[[Any], Any],
    index: int,
    item: Any,
    failed: list[tuple[int, str]] | None,
) -> None:
    """The samples of one input. With a list for failures: all of them, or none and an entry."""
    try:
        samples = samples_of(function(item))
        if failed is not None:
            samples = list(samples)
            if len(samples) > 1:  # so that nothing of a failing input is written
                for sample in samples:
                    _native.encode(sample)
        for sample in samples:
            packer.append(sample)
    except Exception as error:
        if failed is None:
            error.add_note(f"while map was called with input {index}")
            raise
        failed.append((index, error_text(error)))


def samples_of(result: Any) -> Iterable[Any]:
    """What map returned: one sample, many, or none."""
    if result is None:
        return ()
    if isinstance(result, dict):
        return (result,)
    if isinstance(result, (str, bytes)) or not hasattr(result, "__iter__"):
        raise TypeError(
            f"map must return a sample (dict), an iterable of samples or None, "
            f"not {type(result).__name__}"
        )
    many: Iterable[Any] = result
    return many
