"""squirrel.add_fields: fields that are computed later, beside the samples there are."""

from __future__ import annotations

import os

from squirrel import _native
from squirrel._errors import ArgumentError
from squirrel._pack import PackReport, make_report
from squirrel._progress import Progress
from squirrel.stream import Stream, _bytes, open

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from os import PathLike
    from typing import Any

__all__ = ["add_fields"]


def add_fields(
    destination: str | PathLike[str],
    samples: Iterable[Any] | str | PathLike[str] | None = None,
    *,
    map: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    read: Sequence[str] | None = None,
    fields: Sequence[str] | None = None,
    group: str = "added",
    by: str | None = None,
    missing: bool = False,
    block_bytes: int | str | None = None,
    progress: bool | None = None,
    **options: Any,
) -> PackReport:
    """Adds fields to the samples of a directory of native shards; nothing is written anew.

    The new fields go to shards of their own beside those there are, as a group. One commit at the
    end makes them visible: a run that fails or is killed changes nothing. Streams then give samples
    with the new fields too; who selects other fields does not read them. States of running streams
    stay good.

    Args:
        destination: a directory of native shards.
        samples: dicts of the new fields, one for each sample of the data set in its order; or the
            URL of a data set of them.
        map: instead of samples: a function that gets each sample there is and returns a dict of the
            new fields.
        read: with map: the fields that it needs, by default all. Only their groups are read.
        fields: names of the new fields; by default those that the given samples have.
        group: a name for them: letters, digits, ``_`` and ``-``.
        by: a field of the given samples whose value is the key (see ``pack(key=)``) of the sample
            that they belong to: they may come in any order then, and are kept in memory until all
            are there. The field itself is not stored.
        missing: add a group that some shards have to those that lack it, such as were appended
            later; samples are given for these shards only.
        block_bytes: payload of a block; the default is 1 MiB.
        progress: None shows a bar on a terminal, True also plain lines elsewhere, False nothing.
        **options: the write options of native shards: ``codec``, ``level``, ``index`` (a list of
            new fields that :meth:`Stream.where` shall test).

    Returns:
        A report of the new shards.

    Raises:
        ExistsError: the data set has the group or one of the fields already, or somebody added the
            group meanwhile.
        ArgumentError: more or fewer samples than the data set has; the error names the shard and
            the sample of the first that is missing. A sample with another field than `fields`.
    """
    if (samples is None) == (map is None):
        raise ArgumentError("give samples, or map=, a function of the samples that are there")
    if map is not None and by is not None:
        raise ArgumentError("by= goes with samples, which come in any order; map= keeps the order")
    if read is not None and map is None:
        raise ArgumentError("read= names the fields that map= needs")
    if isinstance(options.get("index"), (list, tuple)):
        options["index"] = ",".join(options["index"])
    packer = _native.Packer(
        os.fspath(destination),
        options or None,
        block_bytes=_bytes(block_bytes or 0),
        add=(group, None if fields is None else list(fields), by, missing),
    )
    try:
        runs = packer.runs()
        bar = Progress(progress, sum(count for _, count in runs), "samples")
        tell = bar if bar.enabled else None
        if map is not None:
            packer.extend(_mapped(open(destination), runs, map, read), tell)
        elif isinstance(samples, (str, os.PathLike)):
            packer.extend_plan(open(samples)._plan, tell)
        elif isinstance(samples, Stream) and not samples._plan.batched:
            packer.extend_plan(samples._plan, tell)
        elif samples is not None:
            packer.extend(samples, tell)
        report = packer.finish()
    except BaseException:
        packer.abandon()
        raise
    bar.end(report["samples"], report["file_bytes"])
    return make_report(report, [])


def _mapped(
    source: Stream,
    runs: list[tuple[int, int]],
    function: Callable[[Any], Any],
    read: Sequence[str] | None,
) -> Iterator[Any]:
    if read is not None:
        source = source.select(*read)
    for first, count in _joined(runs):
        for index, sample in enumerate(source.skip(first).take(count)):
            try:
                yield function(sample)
            except Exception as error:
                error.add_note(f"while map was called with sample {first + index}")
                raise


def _joined(runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Runs that follow each other as one."""
    out: list[tuple[int, int]] = []
    for first, count in runs:
        if out and out[-1][0] + out[-1][1] == first:
            out[-1] = (out[-1][0], out[-1][1] + count)
        else:
            out.append((first, count))
    return out
