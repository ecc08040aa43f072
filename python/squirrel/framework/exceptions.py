"""Exceptions of the drivers, catalogs and streams."""


class PyTorchSplittingException(Exception):
    """A stream reaches PyTorch's workers or ranks and nothing splits it: samples would repeat."""


class SourceArgumentsCombinationException(Exception):
    """Arguments of a source that exclude each other."""


class SourceExistsError(Exception):
    """The source is there already."""
