"""Objects as bytes, and shards of samples as files."""

from squirrel.serialization.jsonl import JsonSerializer
from squirrel.serialization.msgpack import MessagepackSerializer
from squirrel.serialization.serializer import SquirrelSerializer

__all__ = ["JsonSerializer", "MessagepackSerializer", "SquirrelSerializer"]
