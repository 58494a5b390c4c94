"""What ledger.py needs: Avro single-object framing, IDs from ranges, and whole topics."""

import io
import json
from pathlib import Path

import fastavro
from confluent_kafka import Consumer, KafkaException, TopicPartition

SCHEMAS = Path(__file__).parent / "../../schemas"
TIMEOUT_S = 30
REGISTRY_FRAME_BYTES = 5


class Message:
    """A schema with its frame: C3 01, the schema's CRC-64-AVRO (little endian), the body."""

    def __init__(self, name: str):
        self.schema = fastavro.parse_schema(json.loads((SCHEMAS / f"{name}.avsc").read_text()))
        canonical = fastavro.schema.to_parsing_canonical_form(self.schema)
        fingerprint = bytes.fromhex(fastavro.schema.fingerprint(canonical, "CRC-64-AVRO"))
        self.frame = b"\xc3\x01" + fingerprint

    def encode(self, value: dict) -> bytes:
        body = io.BytesIO()
        fastavro.schemaless_writer(body, self.schema, value)
        return self.frame + body.getvalue()

    def decode(self, data: bytes) -> dict:
        body = io.BytesIO(data[self._frame_bytes(data) :])
        return fastavro.schemaless_reader(body, self.schema, None)

    def _frame_bytes(self, data: bytes) -> int:
        if data.startswith(self.frame):
            return len(self.frame)
        # A reply to a request in a schema registry's framing starts with 00 and four bytes of the schema's id.
        if data.startswith(b"\x00"):
            return REGISTRY_FRAME_BYTES
        raise ValueError(f"the value starts with {data[:10].hex()}, not with {self.frame.hex()}")


def expand(batch: dict) -> list[int]:
    """All IDs of a batch, which lists them one by one or as ranges."""
    ranges = [r["first"] + i * batch["step"] for r in batch["ranges"] for i in range(r["count"])]
    return batch.get("ids") or ranges


def consumer(brokers: str) -> Consumer:
    """A consumer for manual assignment, which needs no group; the isolation level is the library's default."""
    settings = {"bootstrap.servers": brokers, "group.id": "idalloc-example", "enable.auto.commit": False}
    # Unreachable brokers are reported once, by the call that fails, and not by the library ten times a second.
    return Consumer({**settings, "enable.partition.eof": False, "log_level": 2})


def bounds(reader: Consumer, topic: str) -> list[tuple[TopicPartition, TopicPartition]]:
    """Where each partition of a topic begins and ends now."""
    try:
        about = reader.list_topics(topic, TIMEOUT_S).topics[topic]
    except KafkaException as error:
        raise SystemExit(f"no broker can be reached: {error.args[0].str()}: check --brokers") from None
    if about.error is not None:
        raise SystemExit(f"topic {topic}: {about.error.str()}: create it with 'idalloc topics init --reply-topic {topic}'")
    partitions = about.partitions
    found = []
    for partition in partitions:
        low, high = reader.get_watermark_offsets(TopicPartition(topic, partition), TIMEOUT_S)
        found.append((TopicPartition(topic, partition, low), TopicPartition(topic, partition, high)))
    return found
