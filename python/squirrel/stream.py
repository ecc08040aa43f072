"""Stream: what a driver opens, native until the first Python callable."""

from __future__ import annotations

import os
import zlib

from squirrel import _native
from squirrel._errors import CorruptError, Error, NotFoundError, UnsupportedError
from squirrel._state import texts
from squirrel._topology import topology
from squirrel.iterstream.base import Composable, Run, _names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from os import PathLike
    from typing import Any, overload

    from squirrel.batch import Batch
    from squirrel.iterstream.base import Policy
    from squirrel.iterstream.on_error import OnError
else:

    def overload(function):
        return function


__all__ = ["Stream", "index", "open"]


def open(url: str | PathLike[str], driver: str | None = None, **options: Any) -> Stream:
    """Opens a file or a directory of any known format as a :class:`Stream`.

    Args:
        url: a path or URL, or ``"catalog.yaml#name"``, ``"catalog.yaml#name@version"``, or
            ``"#name"`` of the user's catalogs.
        driver: name of the driver; found from the content when left out.
        **options: the driver's and format's options, see :func:`squirrel.drivers` and
            :func:`squirrel.formats`.

    Raises:
        NotFoundError: nothing is there. FormatError: the format is unknown or mixed.
        ArgumentError: an option is unknown or unreadable.
    """
    return Stream(os.fspath(url), {"driver": driver, **options} if driver else options)


def index(
    url: str | PathLike[str], driver: str | None = None, all: bool = False, **options: Any
) -> dict[str, int]:
    """Counts the samples of a data set and notes where they lie, so that they have positions.

    Files that don't tell by themselves (squirrel-core's ``.gz`` shards, JSON lines, compressed IDX)
    get an index each, ``_index/<name>.sqri`` beside them: ``len``, ``source[i]``, ``get_many`` and
    even shuffles then work as with native shards. Each file is read twice. A directory of native
    shards gets a new commit of the shards there are. The same as ``squirrel index``.

    Args:
        url, driver, **options: as for :func:`squirrel.open`.
        all: native: also shards that no commit names.

    Returns:
        A report: samples, shards, blocks, file_bytes.
    """
    return _native.index(url, all, {"driver": driver, **options} if driver else options)


class Stream(Composable):
    """Samples (dicts with NumPy arrays), or batches, read by native threads.

    Each method makes a new stream on top of this one. Stages run in native threads without the
    GIL until the first one that calls Python; from there on items pass through Python's own
    iterators. A stream can be iterated again and again, pickled and deep-copied (it is its URL,
    options and stages). Samples come in the same order whatever the number of threads.
    """

    _is_root = True

    def __init__(
        self,
        url: str,
        options: Mapping[str, Any] | None = None,
        *,
        _stages: tuple[tuple[Any, ...], ...] = (),
        _native_plan: _native.Plan | None = None,
        _native_source: _native.Source | None = None,
        _listed: str = "",
    ) -> None:
        super().__init__(source=())
        self.url = url
        self.options = dict(options or {})
        self._listed = _listed
        self._stages = _stages
        self._opened = _native_source if _native_source is not None else self._open()
        self._plan = _native_plan if _native_plan is not None else self._build()
        # The plan of this process, kept: the next epoch's first reads are begun in it.
        self._dealt_plans: dict[tuple[int, int, int, int], _native.Plan] = {}

    def _open(self) -> _native.Source:
        head, mark, _ = self.url.partition("#")
        names_source = not head or head.endswith((".yaml", ".yml", ".json"))
        if mark and names_source and not os.path.exists(self.url):
            from squirrel.catalog._places import open_default

            return _native.open_catalog(self.url) if head else open_default(self.url[1:])
        options = {"listed": self._listed, **self.options}
        if "storage_options" in self.options or "://" in self.url:
            from squirrel._remote import open_source

            return open_source(self.url, options, options.pop("storage_options", None))
        return _native.open(self.url, options)

    def _build(self) -> _native.Plan:
        plan = self._opened.plan()
        for verb, args, kw in self._stages:
            kw = {name: value for name, value in kw.items() if name != "split"}
            plan = getattr(plan, verb)(*args, **kw)
        return plan

    def _now(self) -> _native.Plan:
        """The plan of this process: its rank and worker may be known to torch only."""
        if not self.distributed:
            return self._plan
        if not topology() and not any("split" in kw for _, _, kw in self._stages):
            return self._plan
        consumer = _found(_with_topology(self._distribution()))
        plan = self._dealt_plans.get(consumer)
        if plan is None:
            plan = self._dealt({})
            self._dealt_plans.clear()
            self._dealt_plans[consumer] = plan
        return plan

    def _distribution(self) -> dict[str, Any]:
        return next(kw for verb, _, kw in self._stages if verb == "distribute")

    def _dealt(self, topology: dict[str, int]) -> _native.Plan:
        plan = self._opened.plan()
        for verb, args, kw in self._stages:
            if verb == "distribute":
                kw = self._with_owners(_with_topology({**kw, **topology}))
            plan = getattr(plan, verb)(*args, **kw)
        return plan

    def _dealt_to(self, consumers: int) -> _native.Plan:
        """Of a distributed stream: the plan of the first of so many consumers."""
        return self._dealt({"rank": 0, "world_size": consumers, "worker": 0, "workers": 1})

    def _consumer(self) -> tuple[int, int]:
        """Of a distributed stream: how many consumers there are, and which of them this process is."""
        rank, ranks, worker, workers = _found(_with_topology(self._distribution()))
        return ranks * workers, worker * ranks + rank

    def _with_owners(self, kw: dict[str, Any]) -> dict[str, Any]:
        """split= becomes the number of a consumer for each shard."""
        split = kw.get("split")
        if split is None:
            return kw
        _, ranks, _, workers = _found(kw)
        owners = []
        for shard in self.shards:
            owner = split(shard["path"], ranks * workers)
            if not hasattr(owner, "__index__") or not 0 <= owner.__index__() < ranks * workers:
                raise ValueError(
                    f"distribute: split gave {owner!r} for shard {shard['path']}; "
                    f"there are consumers 0 to {ranks * workers - 1}"
                )
            owners.append(owner.__index__())
        import array

        words = array.array("I", owners).tobytes()
        return {**{k: v for k, v in kw.items() if k != "split"}, "owners": words}

    def _then(self, verb: str, *args: Any, **kw: Any) -> Stream:
        plan: _native.Plan = getattr(self._plan, verb)(*args, **kw)
        return self._with((*self._stages, (verb, args, kw)), plan)

    def _with(self, stages: tuple[tuple[Any, ...], ...], plan: _native.Plan) -> Stream:
        stream = Stream(
            self.url,
            self.options,
            _stages=stages,
            _native_plan=plan,
            _native_source=self._opened,
        )
        stream._epoch = self._epoch
        stream._epochs = self._epochs
        return stream

    # --- looking ---

    @property
    def distributed(self) -> bool:
        """Whether :meth:`distribute` deals its samples among ranks and workers."""
        return any(verb == "distribute" for verb, _, _ in self._stages)

    @property
    def driver(self) -> str:
        """Name of the driver that opened it."""
        return self._opened.driver

    @property
    def shards(self) -> list[dict[str, Any]]:
        """The shards: path, file_bytes, samples, raw_bytes (None where unknown), format."""
        return [self._opened.shard(i) for i in range(self._opened.shards)]

    @property
    def schema(self) -> list[dict[str, Any]] | None:
        """The fields of the source: name, type, kind, dtype, shape, nullable; None if unknown."""
        return self._opened.schema()

    @property
    def groups(self) -> list[dict[str, Any]]:
        """The groups of fields (:func:`squirrel.pack` with ``groups=``, :func:`squirrel.add_fields`):
        name, fields, base, added, shards (that have it), samples, raw_bytes, file_bytes. The first
        is the base, which gives shards and numbers. Empty where samples are kept whole.
        """
        return self._opened.groups()

    def __len__(self) -> int:
        count = self._now().count()
        if count is None:
            raise TypeError(
                "the number of items is not known before they are read; "
                f"count them: sum(1 for _ in stream){self._why_uncounted()}"
            )
        return count

    def _most(self) -> int | None:
        """No pass gives more items than this, filters or not; None: nobody knows."""
        counts = [self._opened.shard(i)["samples"] for i in range(self._opened.shards)]
        endless = any(verb == "distribute" and "steps" in kw for verb, _, kw in self._stages)
        return None if endless or None in counts else sum(counts)

    def _why_uncounted(self) -> str:
        """What the source says, for a message: an index that is missing, damaged or of other data."""
        try:
            self._plan.locate(0)
        except Error as error:
            return f". The source: {error}"
        except TypeError:  # behind a filter, say: nothing is wrong with the source
            pass
        return ""

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return self._plan.describe()

    def __reduce__(self) -> tuple[Any, ...]:
        listed = (self._opened.listed or "").encode()
        packed = zlib.compress(listed, 1) if listed else b""
        return _restore, (self.url, self.options, self._stages, self._epoch, self._saved, packed)

    def __copy__(self) -> Stream:
        stream = self._with(self._stages, self._plan)
        stream._saved = self._saved
        stream._dealt_plans = self._dealt_plans
        return stream

    def __deepcopy__(self, memo: dict[int, Any]) -> Stream:
        return self.__copy__()

    # --- by position ---

    @overload
    def __getitem__(self, index: int | str | bytes) -> Any: ...

    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...

    def __getitem__(self, index: int | str | bytes | slice) -> Any:
        """Sample number `index`, or the list of those of a slice; see :meth:`get_many`.

        A text or bytes is a key: the first sample that has it, of shards that were packed with
        ``key=``; see :meth:`find` (for keys that are integers, too).

        Raises:
            IndexError, KeyError: there is no such sample.
        """
        if isinstance(index, (str, bytes)):
            return self._plan.get(self._plan.find([index])[0])
        if isinstance(index, slice):
            return self._plan.get_many(range(*index.indices(len(self))))
        return self._plan.get(index)

    def find(self, key: str | bytes | int) -> int:
        """The position of the first sample with this key.

        Raises:
            KeyError: there is none. UnsupportedError: the shards were packed without ``key=``.
        """
        return self._plan.find([key])[0]

    def find_many(self, keys: Iterable[str | bytes | int]) -> list[int]:
        """The positions of the first samples with these keys; see :meth:`find`.

        Each shard is asked once for all of them, far shards many at a time:
        ``get_many(find_many(keys))`` gives the samples.

        Raises:
            KeyError: no sample has this one, the first such.
        """
        if isinstance(keys, (str, bytes)):
            raise TypeError(f"find_many: keys must be a list of keys, not {keys!r}: find() takes one")
        return self._plan.find(keys)

    def locate(self, index: int) -> tuple[str, int]:
        """Where sample `index` lies: path of its shard, and its number there."""
        return self._plan.locate(index)

    def with_meta(self) -> Composable:
        """Each sample with its origin: ``sample["__meta__"]`` is a dict.

        ``shard`` is the path, ``sample`` the number within it, ``index`` the position in
        the whole source (None where samples are not counted), ``key`` the key, or None.
        Stages behind it are Python's.
        """
        from squirrel.access import with_meta

        return with_meta(self)

    def get_many(
        self, indices: Sequence[int], copy: bool = True, meta: bool = False
    ) -> list[Any]:
        """The samples at these positions, in this order; the same one may come several times.

        Positions count from 0 in the order of the stream, which must be one without stages, or
        with select(), drop() and rename() only; negative ones count from the end. Every block
        is read once a call, neighbours in one request. Shards are packed for it by small
        blocks: ``pack(..., block_bytes="4 KiB", codec="none")``.

        Args:
            indices: a list, a range, an int64 array.
            copy: False lends arrays as read-only views of memory that they share.
            meta: each sample has ``__meta__``, as :meth:`with_meta` gives it.

        Raises:
            IndexError: there is no such sample.
            UnsupportedError: the samples are not counted: ``squirrel index`` counts them.
        """
        samples = self._plan.get_many(indices, copy)
        if meta:
            from squirrel.access import add_meta

            add_meta(self, indices, samples)
        return samples

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """What torch's DataLoader calls for a batch of a map-style dataset: get_many()."""
        return self._plan.get_many(indices)

    def forecast(self) -> dict[str, int | None]:
        """What a pass of this rank and worker will read, from the shards' indexes, without their data.

        Returns:
            items; chunks, shards; blocks and block_bytes (as stored: a request each); decoded_bytes;
            first_blocks and first_bytes (before the first sample comes); window_bytes (in memory
            together, twice). For remote data also requests and request_bytes of a cold pass, its
            indexes included; first_requests, first_request_bytes and first_rounds (of requests
            that wait for each other) before the first sample or batch. ``squirrel simulate`` does
            this for all ranks of a topology.

        Raises:
            ArgumentError: behind take, skip and distribute(steps=).
            UnsupportedError: a shard has no index of blocks.
        """
        return self._now().forecast(self._epoch or 0)

    def metrics(self) -> dict[str, int]:
        """What the source's file system did so far, for all streams of this source.

        Returns:
            requests and lists (pages of listings); bytes that came; retries and hedges among the
            requests; cache_hits and cache_bytes, reads that a cache answered; first_byte_ns, the
            nanoseconds to the first byte of first_bytes requests; parallel_most, how many were under
            way at a time. Of local files requests are reads.
        """
        return self._opened.metrics()

    # --- running ---

    def _start(self, run: Run) -> Iterator[Any]:
        from squirrel.iterstream.resume import states_of

        states = states_of(run, self._saved)
        epoch = self._epoch_of(run)
        iterator = self._now().iterate(epoch=epoch, states=states, following=run.following)
        run.native = run.root = iterator
        run.closers.append(iterator.close)
        return iterator

    def __iter__(self) -> Iterator[Any]:
        return self.iterator()

    def iterator(  # type: ignore[override]
        self, copy: bool = True, *, state: Any = None
    ) -> _native.Samples | _native.Batches:
        """One pass with an explicit end: a context manager with close(), place() and stats().

        Its ``state_dict()`` is where it stands, a dict that JSON takes.

        Args:
            state: where to go on: what state_dict() gave, in the epoch it was in. With the rank
                and worker that it was saved by, one is enough; with other numbers of ranks or
                workers give all of them, in a list or any nesting (of a checkpoint, say).
            copy: False lends arrays as read-only views of the block that was read; a view keeps
                its whole block (about 1 MiB) in memory for as long as it lives.
        """
        state = self._saved if state is None else state
        states = None if state is None else texts(state)
        return self._now().iterate(copy, self._epoch or 0, states, self._following())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The batches as an Arrow C stream: ``pyarrow.RecordBatchReader.from_stream(...)``."""
        if not self._plan.batched:
            raise TypeError("an Arrow stream is made of batches: call batch() first")
        return self._now().arrow_stream()

    # --- native stages ---

    @overload
    def filter(self, predicate: str) -> Stream: ...

    @overload
    def filter(
        self, predicate: Callable[[Any], Any], *, on_error: Policy = "raise"
    ) -> Composable: ...

    def filter(
        self, predicate: str | Callable[[Any], Any], *, on_error: Policy = "raise"
    ) -> Composable:
        """Keeps samples for which the predicate holds.

        Args:
            predicate: an expression, which runs in native threads::

                label == 3 and (score < 0.5 or not flagged)
                meta.site in ["a", "b"]
                path contains "/api/"    path startswith "/"    note is null

                A comparison with a missing or null field is false. Or a callable of one sample.
            on_error: what follows when the callable raises, as in :meth:`map`.

        Raises:
            NotFoundError: (when iterated) no sample has such a field, where that is known before
                reading: native shards. Elsewhere a warning is logged at the end. A field that the
                expression tests for null may be missing everywhere.
        """
        if isinstance(predicate, str):
            return self._then("filter", predicate)
        return super().filter(predicate, on_error=on_error)

    def where(self, expression: str) -> Stream:
        """The samples for which the expression holds, found without reading any sample.

        The expression is one of :meth:`filter` over fields that were packed with ``index=[...]``.
        What comes out is a source again, with ``len`` and positions: it streams, shuffles, is
        distributed and read by position like one. Stands in front of all other stages. Each
        process finds them anew, from the columns; 4 bytes of memory a sample that is left.

        Behind another where() both must hold.

        Raises:
            NotFoundError: a field has no column.
        """
        return self._then("where", expression)

    def select(self, *names: str) -> Stream:
        """Keeps only these fields; dotted names reach into nested ones."""
        return self._then("select", _names(names))

    def drop(self, *names: str) -> Stream:
        """Removes these fields."""
        return self._then("drop", _names(names))

    def rename(self, names: dict[str, str] | None = None, **more: str) -> Stream:
        """Gives fields new names: ``rename({"old": "new"})`` or ``rename(old="new")``."""
        pairs = {**(names or {}), **more}
        return self._then("rename", tuple(pairs), tuple(pairs.values()))

    def shuffle_all(
        self, seed: int | None = None, window: int | str | None = 0
    ) -> Stream:
        """Random order of all samples, the same for the same seed and epoch.

        Args:
            seed: 0 to 2**64-1. None draws one now. ``set_epoch`` gives another order of it.
            window: bytes of samples mixed at a time (0: 64 MiB), or a text such as "64 MiB".
                None: any sample may come next; each is read for itself with its block (about
                1 MiB), which is slow, and needs shards whose samples are counted.
        """
        if seed is None:
            seed = int.from_bytes(os.urandom(8), "little")
        elif not hasattr(seed, "__index__"):
            raise TypeError(f"shuffle_all: the seed must be an int, not {seed!r}")
        size = (1 << 64) - 1 if window is None else _bytes(window)
        return self._then("shuffle_all", seed % (1 << 64), size)

    def distribute(
        self,
        rank: int | None = None,
        world_size: int | None = None,
        worker: int | None = None,
        workers: int | None = None,
        *,
        tail: str = "pad",
        steps: int | None = None,
        like: int | None = None,
        split: Callable[[str, int], int] | None = None,
    ) -> Stream:
        """Deals the samples among ranks and workers; each reads its own part only.

        Sample number p of the order goes to consumer p mod C, where C = world_size * workers and
        consumer = worker * world_size + rank. Who this process is, is found when a pass begins.

        Args:
            rank, world_size: found from torch.distributed, else from RANK and WORLD_SIZE,
                SLURM_PROCID and SLURM_NTASKS, or OMPI_COMM_WORLD_RANK and _SIZE, else 0 of 1.
            worker, workers: found from torch's get_worker_info(), else 0 of 1.
            tail: "pad" gives all consumers equally many samples, some of them one twice; "drop"
                leaves less than one a consumer out; "uneven" gives each sample once.
            steps: each consumer gives so many items (behind batch: batches), beginning its samples
                anew where they do not suffice: equal numbers also behind filters. Instead of tail.
            like: the order that so many consumers would have; any number of consumers that
                divides lcm(like, 48) then has the same global batches. By default as many as
                there are.

            split: a rule of one's own: ``split(path, consumers)`` says which consumer, 0 to
                consumers - 1, gets the shard with this path; the same answer in every process. With
                tail="pad" all then give as many samples as the one that has most. Such a run goes
                on with the numbers of ranks and workers it had.

        Stands before take, skip and batch, which count per consumer. Raises UnsupportedError when
        a pass begins over shards whose samples are not counted.
        """
        given = {"rank": rank, "world_size": world_size, "worker": worker, "workers": workers}
        for one, other in (("rank", "world_size"), ("worker", "workers")):
            if (given[one] is None) != (given[other] is None):
                raise ValueError(f"distribute: {one} and {other} are given together, or neither")
        kw: dict[str, Any] = {
            name: _at_least(value, name in ("world_size", "workers"), f"distribute: {name}")
            for name, value in {**given, "steps": steps, "like": like}.items()
            if value is not None
        }
        if split is None:
            return self._then("distribute", tail=tail, **kw)
        if not callable(split):
            raise TypeError(f"distribute: split must be a callable, not {split!r}")
        plan = self._plan.distribute(tail=tail, **kw)
        return self._with((*self._stages, ("distribute", (), {"tail": tail, "split": split, **kw})), plan)

    def split(self, parts: int | Sequence[float], seed: int = 0, *, by: str | None = None) -> list[Stream]:
        """Disjoint parts of the samples, together all of them.

        The value of a field decides, by its hash and the seed: samples with equal values (of one
        patient, say) are in one part, and a sample stays in its part when data are appended. Where
        the field was packed with ``index=``, and no stage stands in front, the parts are sources with
        ``len`` and positions, as those of :meth:`where`; elsewhere they are filters.

        Args:
            parts: how many equal parts, or their fractions, such as ``[0.8, 0.1, 0.1]``, which sum
                to 1. Sizes are near these where there are many different values.
            seed: another one, other parts.
            by: the field: numbers, texts or bytes; dotted names reach into nested ones. Samples
                that lack it are in one part. None: the field that was packed as ``key=``; without
                one each sample for itself, by the name of its shard and its number there, with
                ``len`` and positions (then in front of all other stages, over counted samples).
        """
        fold = self._folder(seed, by)
        return [fold(low, high, False) for low, high in _edges(parts)]

    def k_fold(self, k: int, seed: int = 0, *, by: str | None = None) -> list[tuple[Stream, Stream]]:
        """k pairs (training, validation): each part of :meth:`split` is validated by once."""
        fold = self._folder(seed, by)
        edges = _edges(_at_least(k, 2, "k_fold"))
        return [(fold(low, high, True), fold(low, high, False)) for low, high in edges]

    def _folder(self, seed: int, by: str | None) -> Callable[[float, float, bool], Stream]:
        """What gives the part from one edge to the other, or all others."""
        seed = _at_least(seed, 0, "split: seed") % (1 << 64)
        by = self._opened.key_field or None if by is None else by
        if by is None:
            return lambda low, high, others: self._then("part", seed, low, high, others)
        name = ".".join(f"`{part}`" for part in by.split("."))

        def fold(low: float, high: float, others: bool) -> Stream:
            part = f"{name} fold [{seed}, {low!r}, {high!r}]"
            part = f"not ({part})" if others else part
            if all(verb == "where" for verb, _, _ in self._stages):
                try:
                    return self.where(part)
                except (NotFoundError, UnsupportedError):  # no column
                    pass
            return self.filter(part)

        return fold

    def take(self, n: int | None) -> Stream:
        """The first n samples, behind batch() batches; None: all."""
        return self if n is None else self._then("take", _at_least(n, 0, "take"))

    def skip(self, n: int) -> Stream:
        """All but the first n samples, behind batch() batches."""
        return self._then("skip", _at_least(n, 0, "skip"))

    def on_error(self, policy: str | Callable[[Exception, Any], Any] | OnError) -> Stream:
        """What becomes of bad samples: blocks that can't be read, values that fit no filter or column.

        Args:
            policy: "raise"; "skip" leaves them out; "substitute" gives the last good sample again
                in their place, so that numbers stay equal on all ranks; "retry" reads a block again
                before it raises. A callable ``policy(error, bad)`` returns
                :data:`~squirrel.iterstream.SKIP` or :data:`~squirrel.iterstream.SUBSTITUTE`, or
                raises; `bad` is a dict as quarantine() gives it. It is called on threads of the
                library, ahead of what the program has in hand, in the order of the samples. Or an
                :class:`~squirrel.iterstream.OnError` with budgets, retries and `then`; native
                streams take neither a `value` nor a `delay`.

        A bad block counts as one failure with all its samples, and so does a shard that can't be
        opened where it is known how many samples it holds. Where a shard is only read from the
        front, all behind the damage is left out. ``with stream.iterator() as it: ...;
        it.quarantine()`` tells what was: file, block, sample, error.
        """
        from squirrel.iterstream.on_error import _NO_VALUE, NativeAsk, OnError

        chosen = policy if isinstance(policy, OnError) else OnError(policy)
        if chosen.value is not _NO_VALUE or chosen.delay:
            raise ValueError(
                "on_error of native streams takes no value or delay: give them to the stage behind "
                "which calls Python, as in map(f, on_error=...)"
            )
        total = (1 << 64) - 1 if chosen.total is None else chosen.total
        budgets = {"retries": chosen.retries, "consecutive": chosen.consecutive, "total": total}
        if isinstance(chosen.last, str):
            return self._then("on_error", chosen.last, **budgets)
        return self._then("on_error", "ask", **budgets, ask=NativeAsk(chosen.last))

    def prefetch(self, bytes: int | str) -> Stream:
        """How far reading may run ahead of the consumer, e.g. "64 MiB"; 0: the whole budget."""
        return self._then("prefetch", _bytes(bytes))

    def batch(  # type: ignore[override]
        self,
        batch_size: int | None = None,
        drop_remainder: bool = False,
        ragged: str = "offsets",
        pad_value: float = 0.0,
        *,
        length_by: str | None = None,
        boundaries: Sequence[int] | None = None,
        max_tokens: int | None = None,
        max_bytes: int | str | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> BatchedStream:
        """Samples as columns: each item is a :class:`squirrel.Batch`, a dict of arrays [n, ...].

        Args:
            batch_size: rows; exactly one of batch_size, max_tokens and max_bytes is given.
            drop_remainder: leaves the last, smaller batch (of each bucket) out.
            ragged: numeric fields of varying shape become "offsets" (a Column), are padded
                ("pad"), or are an "error". Strings and bytes always have offsets.
            pad_value: what padding is filled with.
            length_by: field whose length (first dimension, bytes of a string, or the value of an
                integer) decides on buckets and counts for max_tokens.
            boundaries: ascending lengths that divide the buckets.
            max_tokens: a batch is closed before rows x longest length would exceed it.
            max_bytes: a batch is closed before the sum of its samples' data would exceed it.
            fields: declared types, e.g. {"x": "float32", "label": "int64?"}: they win over what
                the first samples show.
        """
        kw: dict[str, Any] = {"drop_remainder": drop_remainder, "ragged": ragged}
        kw["pad_value"] = float(pad_value)
        if batch_size is not None:
            kw["batch_size"] = _at_least(batch_size, 1, "batch")
        if length_by is not None:
            kw["length_by"] = length_by
        if boundaries is not None:
            kw["boundaries"] = tuple(boundaries)
        if max_tokens is not None:
            kw["max_tokens"] = _at_least(max_tokens, 1, "batch: max_tokens")
        if max_bytes is not None:
            kw["max_bytes"] = _bytes(max_bytes)
        if fields is not None:
            kw["fields"] = dict(fields)
        return self._then("batch", **kw)  # type: ignore[return-value]


if TYPE_CHECKING:

    class BatchedStream(Stream):
        """How type checkers see what batch() gives: a Stream whose items are Batch."""

        def __iter__(self) -> Iterator[Batch]: ...
        def iterator(self, copy: bool = True) -> _native.Batches: ...  # type: ignore[override]
        def collect(self) -> list[Batch]: ...
        def take(self, n: int | None) -> BatchedStream: ...
        def skip(self, n: int) -> BatchedStream: ...
        def prefetch(self, bytes: int | str) -> BatchedStream: ...


_MAX_LISTED = 4 << 20


def _unpack_listed(packed: bytes) -> str:
    if not packed:
        return ""
    unpack = zlib.decompressobj()
    try:
        listed = unpack.decompress(packed, _MAX_LISTED).decode("ascii")
    except (zlib.error, UnicodeDecodeError):
        listed = ""
    if not listed or not unpack.eof:
        raise CorruptError("a pickled stream's list of files is damaged: open the URL anew")
    return listed


def _restore(
    url: str,
    options: dict[str, Any],
    stages: tuple[tuple[Any, ...], ...],
    epoch: int | None,
    saved: Any,
    packed: bytes = b"",
) -> Stream:
    stream = Stream(url, options, _stages=stages, _listed=_unpack_listed(packed))
    stream._epoch = epoch
    stream._saved = saved
    return stream


def _with_topology(kw: dict[str, Any]) -> dict[str, Any]:
    """A distribute's arguments, with what torch knows where they say nothing."""
    found = topology()
    if "world_size" in kw:
        return {**{k: v for k, v in found.items() if k.startswith("worker")}, **kw}
    if "workers" in kw:
        return {**{k: v for k, v in found.items() if not k.startswith("worker")}, **kw}
    return {**found, **kw}


def _found(kw: dict[str, Any]) -> tuple[int, int, int, int]:
    """rank, world_size, worker, workers"""
    return _native.topology(*(kw.get(name, 0) for name in ("rank", "world_size", "worker", "workers")))


def _edges(parts: int | Sequence[float]) -> list[tuple[float, float]]:
    """Where in [0, 1] the parts of a split begin and end."""
    if isinstance(parts, int):
        count = _at_least(parts, 1, "split")
        fractions = [1 / count] * count
    else:
        fractions = [float(part) for part in parts]
    if not fractions or min(fractions) < 0 or abs(sum(fractions) - 1) > 1e-9:
        raise ValueError(f"split({parts!r}): fractions must be from 0 on and sum to 1")
    ends = [sum(fractions[: i + 1]) for i in range(len(fractions) - 1)]
    edges = [0.0, *(min(end, 1.0) for end in ends), 1.0]
    return list(zip(edges, edges[1:]))


def _at_least(n: int, least: int, what: str) -> int:
    if not hasattr(n, "__index__"):
        raise TypeError(f"{what}({n!r}): must be an int")
    n = n.__index__()
    if n < least:
        raise ValueError(f"{what}({n}): must be at least {least}")
    return n


_UNITS = {"": 1, "b": 1}
for _i, _letter in enumerate("kmgt", 1):
    _UNITS[_letter + "b"] = 1000**_i
    _UNITS[_letter + "ib"] = 1024**_i


def _bytes(size: int | str) -> int:
    """4096, "64 KiB", "1.5 GB" in bytes."""
    if not isinstance(size, str):
        return _at_least(size, 0, "a size in bytes ")
    number = size.strip().rstrip("BbiKkMmGgTt ")
    unit = size.strip()[len(number) :].strip().lower()
    try:
        count = float(number)
        if count < 0:
            raise ValueError
        return int(count * _UNITS[unit])
    except (ValueError, KeyError, OverflowError):
        raise ValueError(f'{size!r} is no size: give bytes, or a text such as "64 MiB"') from None
