"""A client of idalloc for Python services, to copy: 64-bit IDs, and numbers of sequences, over Kafka.

It needs confluent-kafka 2.x and nothing else. One thread reads the replies of all calls; each call waits for its own.

    from idalloc_client import IdallocClient

    with IdallocClient("localhost:9092", "id.replies.orders") as client:
        ids = client.request(3, correlation_id="order-4711").ids         # the same three IDs at each retry
        invoice = client.numbers("invoices/2027", 1, "order-4711").texts[0]
        key = client.next_id()                                           # from a buffer, at once

With asyncio: `await asyncio.wrap_future(client.submit(3))`.
"""

import io
import random
import re
import threading
import time
import uuid
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

MAX_PAUSE_S = 30
RETRYABLE = {"QUOTA_EXCEEDED", "OVERTAKEN", "SCHEMA_REGISTRY_UNAVAILABLE", "NO_REPLY", "KAFKA_UNAVAILABLE"}


class IdallocError(Exception):
    """Why there are no IDs. `code` is one of idalloc's error codes, `message` has the cause and the remedy.

    `retryable`: the same call may succeed later, under the same correlation ID, after `retry_after_s` if that is known.
    """

    def __init__(self, code: str, message: str, correlation_id: str, retry_after_s: float | None = None):
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.correlation_id = code, message, correlation_id
        self.retry_after_s = retry_after_s
        self.retryable = code in RETRYABLE or retry_after_s is not None


@dataclass(frozen=True)
class Batch:
    """IDs that no other request gets. `replayed`: the correlation ID had them already."""

    correlation_id: str
    count: int
    ids: list[int]
    replayed: bool


@dataclass(frozen=True)
class Numbers:
    """Numbers of a sequence: first, first + step, … `texts` has each as the sequence's format writes it."""

    correlation_id: str
    sequence: str
    first: int
    count: int
    step: int
    format: str
    replayed: bool

    @property
    def values(self) -> list[int]:
        return [self.first + i * self.step for i in range(self.count)]

    @property
    def texts(self) -> list[str]:
        digits = re.search(r"\{number(?::(\d+))?\}", self.format or "{number}")
        return [(self.format or digits[0]).replace(digits[0], str(n).zfill(int(digits[1] or 1))) for n in self.values]


@dataclass
class _Wait:
    """A call that waits for its reply, and the record that is sent again until the reply is there."""

    future: Future
    kind: str
    correlation_id: str
    count: int
    key: bytes
    headers: dict
    deadline: float
    pause_s: float
    send_at: float
    refusal: IdallocError | None = None


class IdallocClient:
    """Requests IDs and numbers. All methods may be called from any thread; `close` ends what still waits.

    `reply_topic` is created by `idalloc topics init --reply-topic NAME`; instances of a service may share it.
    `settings` are librdkafka's, such as TLS and a login. `buffer`: how many IDs `next_id` keeps.
    """

    def __init__(
        self, brokers: str, reply_topic: str, *, request_topic: str = "id.requests", settings: dict | None = None,
        timeout_s: float = 30, resend_s: float = 3, buffer: int = 1_000, max_age_s: float = 60,
    ):  # fmt: skip
        self._request_topic, self._reply_topic = request_topic, reply_topic
        self._timeout_s, self._resend_s = timeout_s, resend_s
        self._buffer, self._max_age_s = buffer, max_age_s
        common = {"bootstrap.servers": brokers, **(settings or {})}
        # The partitioner of Java's client: a request then goes to the partition that decides it, and is not forwarded.
        self._producer = Producer({**common, "partitioner": "murmur2_random", "linger.ms": 1})
        self._consumer = Consumer({**common, "group.id": "idalloc-client", "enable.auto.commit": False})
        self._lock = threading.Condition()
        self._waits: dict[bytes, list[_Wait]] = {}
        self._stock: deque[tuple[float, deque[int]]] = deque()
        self._refill: Future | None = None
        self._closed = False
        self._partition = self._follow()
        self._thread = threading.Thread(target=self._run, name="idalloc-client", daemon=True)
        self._thread.start()

    def __enter__(self) -> "IdallocClient":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def request(self, count: int = 1, *, correlation_id: str | None = None, timeout_s: float | None = None) -> Batch:
        """1 to 100,000 new IDs; under a correlation ID that had some, the same again. Raises IdallocError.

        After NO_REPLY the IDs may have been decided: a retry with the same correlation ID gets them.
        """
        return self.submit(count, correlation_id=correlation_id, timeout_s=timeout_s).result()

    def numbers(self, sequence: str, count: int, correlation_id: str, *, timeout_s: float | None = None) -> Numbers:
        """The next numbers of a sequence, for the document with this ID: a retry gets the same ones."""
        return self.submit(count, correlation_id=correlation_id, sequence=sequence, timeout_s=timeout_s).result()

    def submit(
        self, count: int = 1, *, correlation_id: str | None = None, sequence: str | None = None,
        timeout_s: float | None = None,
    ) -> Future:  # fmt: skip
        """The same without waiting: a Future of a Batch, or of Numbers with `sequence`."""
        correlation_id = correlation_id or str(uuid.uuid4())
        headers = {
            "kafka_correlationId": correlation_id.encode(),
            "kafka_replyTopic": self._reply_topic.encode(),
            "kafka_replyPartition": str(self._partition).encode(),
            "idalloc-count": str(count).encode(),
        }
        if sequence is not None:
            headers["idalloc-sequence"] = sequence.encode()
        now = time.monotonic()
        deadline = now + (self._timeout_s if timeout_s is None else timeout_s)
        key = (sequence or correlation_id).encode()
        kind = "ids" if sequence is None else "numbers"
        wait = _Wait(Future(), kind, correlation_id, count, key, headers, deadline, self._resend_s, now)
        with self._lock:
            if self._closed:
                raise RuntimeError("the client is closed")
            self._waits.setdefault(correlation_id.encode(), []).append(wait)
        self._send_due()
        return wait.future

    def next_id(self, timeout_s: float | None = None) -> int:
        """An ID from the buffer, which is at most `max_age_s` old; waits only while the buffer is empty."""
        deadline = time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        with self._lock:
            while True:
                while self._stock and self._stock[0][0] < time.monotonic() - self._max_age_s:
                    self._stock.popleft()
                left = sum(len(ids) for _, ids in self._stock)
                if left < self._buffer / 2 and (self._refill is None or self._refill.done()):
                    if left == 0 and self._refill is not None and self._refill.exception() is not None:
                        failed, self._refill = self._refill, None
                        raise failed.exception()
                    self._refill = Future()
                    threading.Thread(target=self._fill, args=(self._refill,), daemon=True).start()
                if left > 0:
                    taken = self._stock[0][1].popleft()
                    if not self._stock[0][1]:
                        self._stock.popleft()
                    return taken
                if not self._lock.wait(max(0, deadline - time.monotonic())):
                    raise IdallocError("NO_REPLY", "no IDs came in time for the buffer: is a worker running?", "")

    def close(self) -> None:
        """Ends the client; calls that still wait fail with RuntimeError."""
        self._closed = True
        self._thread.join()
        self._producer.flush(1)
        self._consumer.close()

    def _fill(self, refill: Future) -> None:
        asked_at = time.monotonic()
        try:
            batch = self.request(self._buffer)
            with self._lock:
                self._stock.append((asked_at, deque(batch.ids)))
            refill.set_result(None)
        except Exception as error:  # the call that finds the buffer empty gets it
            refill.set_exception(error)
        with self._lock:
            self._lock.notify_all()

    def _follow(self) -> int:
        """Reads one partition of the reply topic from its end on, so that no reply of ours is missed."""
        try:
            about = self._consumer.list_topics(self._reply_topic, self._timeout_s).topics[self._reply_topic]
            if about.error is not None:
                raise KafkaException(about.error)
            partition = random.choice(list(about.partitions))
            _, end = self._consumer.get_watermark_offsets(TopicPartition(self._reply_topic, partition), self._timeout_s)
        except KafkaException as error:
            remedy = f"check the brokers, or create it with 'idalloc topics init --reply-topic {self._reply_topic}'"
            why = f"topic {self._reply_topic}: {error.args[0].str()}: {remedy}"
            raise IdallocError("KAFKA_UNAVAILABLE", why, "") from None
        self._consumer.assign([TopicPartition(self._reply_topic, partition, end)])
        return partition

    def _run(self) -> None:
        try:
            while not self._closed:
                record = self._consumer.poll(0.1)
                if record is not None and record.error() is None and record.key() in self._waits:
                    self._answer(record)
                self._producer.poll(0)
                self._send_due()
        finally:
            with self._lock:
                self._closed = True
                for wait in [wait for waits in self._waits.values() for wait in waits]:
                    wait.future.set_exception(RuntimeError("the client was closed"))

    def _send_due(self) -> None:
        """Sends what has no reply yet, ever more rarely, and ends what waited too long."""
        now = time.monotonic()
        with self._lock:
            for wait in [wait for waits in self._waits.values() for wait in waits]:
                if now >= wait.deadline:
                    self._end(wait)
                    silent = f"no reply in time: is a worker running? Retry with correlation ID {wait.correlation_id}"
                    wait.future.set_exception(wait.refusal or IdallocError("NO_REPLY", silent, wait.correlation_id))
                elif now >= wait.send_at:
                    try:
                        self._producer.produce(self._request_topic, key=wait.key, headers=wait.headers)
                    except BufferError:  # librdkafka's queue is full: the next round sends it
                        continue
                    # Only the first record shows how old the request is, so each later one names that time.
                    wait.headers.setdefault("idalloc-first-sent", str(time.time_ns() // 1_000_000).encode())
                    wait.send_at, wait.pause_s = now + wait.pause_s, min(2 * wait.pause_s, MAX_PAUSE_S)

    def _answer(self, record) -> None:
        try:
            kind, value = decode_reply(record.value())
        except (ValueError, IndexError):  # no worker wrote it, so it is not the reply
            return
        headers = dict(record.headers() or [])
        with self._lock:
            for wait in list(self._waits.get(record.key(), [])):
                if kind == "error":
                    self._refused(wait, IdallocError(*value, wait.correlation_id, _seconds(headers)))
                elif kind == wait.kind and value["count"] == wait.count:  # else it answers another request
                    self._end(wait)
                    about = {**value, "replayed": "idalloc-replayed" in headers}
                    made = Numbers if kind == "numbers" else Batch
                    wait.future.set_result(made(wait.correlation_id, **about))

    def _refused(self, wait: _Wait, error: IdallocError) -> None:
        """A temporary refusal is tried again when the workers say, within the time of the call."""
        at = time.monotonic() + (error.retry_after_s or self._resend_s)
        if error.retryable and at < wait.deadline:
            wait.refusal, wait.send_at = error, at
        else:
            self._end(wait)
            wait.future.set_exception(error)

    def _end(self, wait: _Wait) -> None:
        key = wait.correlation_id.encode()
        self._waits[key].remove(wait)
        if not self._waits[key]:
            del self._waits[key]


class _Avro(io.BytesIO):
    """Reads Avro's binary encoding, as far as replies need it."""

    def long(self) -> int:
        value = shift = 0
        while (byte := self.read(1)[0]) >= 0x80:
            value, shift = value | (byte & 0x7F) << shift, shift + 7
        value |= byte << shift
        return (value >> 1) ^ -(value & 1)

    def text(self) -> str:
        return self.read(self.long()).decode()

    def array(self, item) -> list:
        items = []
        while count := self.long():
            if count < 0:
                self.long()  # the block's size in bytes
            items += [item() for _ in range(abs(count))]
        return items


def _seconds(headers: dict) -> float | None:
    after = headers.get("idalloc-retry-after-ms")
    return None if after is None else int(after) / 1_000


def decode_reply(data: bytes):
    """What a reply holds: ("ids", fields), ("numbers", fields) or ("error", (code, message))."""
    if data[:2] != b"\xc3\x01":
        raise ValueError(f"the reply starts with {data[:2].hex()}, not with c301")
    avro = _Avro(data[10:])
    avro.read(avro.long())  # the correlation ID, which is the key as well
    branch = avro.long()
    if branch == 0:
        ranges = avro.array(lambda: (avro.long(), avro.long()))
        ids, step = avro.array(avro.long), avro.long()
        ids = ids or [first + i * step for first, count in ranges for i in range(count)]
        return "ids", {"count": len(ids), "ids": ids}
    if branch == 1:
        return "error", (avro.text(), avro.text())
    fields = {"sequence": avro.text(), "first": avro.long(), "count": avro.long(), "step": avro.long()}
    return "numbers", {**fields, "format": avro.text()}
