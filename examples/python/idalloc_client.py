"""A client of idalloc for Python services, to copy: 64-bit IDs, and numbers of sequences, over Kafka.

It needs confluent-kafka 2.x and nothing else. One thread reads the replies of all calls; each call waits for its own.

    from idalloc_client import IdallocClient

    with IdallocClient("localhost:9092", "id.replies.orders") as client:
        ids = client.request(3, correlation_id="order-4711").values
        invoice = client.numbers("invoices/2027", 1, "order-4711").texts[0]
        key = client.next_id()

A retry of `request` gets the same three IDs. With asyncio: `await asyncio.wrap_future(client.submit(3))`.
"""

import io
import random
import re
import threading
import time
import uuid
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

MAX_PAUSE_S = 30
RETRYABLE = {"QUOTA_EXCEEDED", "OVERTAKEN", "SCHEMA_REGISTRY_UNAVAILABLE", "NO_REPLY", "KAFKA_UNAVAILABLE"}
SCHEMAS = {bytes.fromhex("c3015166409208072ae3"), bytes.fromhex("c3018df710a8de41f887")}  # how replies begin
PLACE = re.compile(r"\{number(?::(\d+))?\}")  # where a format has the number: {number:6} for at least six digits


class IdallocError(Exception):
    """Why there are no IDs. `code` is one of idalloc's error codes, `message` has the cause and the remedy.

    `retryable`: the same call may succeed later, under the same correlation ID, after `retry_after_s` if that is known.
    """

    def __init__(self, code: str, message: str, correlation_id: str = "", retry_after_s: float | None = None):
        super().__init__(f"{code}: {message}")
        self.code, self.message = code, message
        self.correlation_id, self.retry_after_s = correlation_id, retry_after_s
        self.retryable = code in RETRYABLE or retry_after_s is not None


@dataclass(frozen=True)
class Batch:
    """IDs, or numbers of a sequence, that no other request gets. `replayed`: the correlation ID had them already."""

    correlation_id: str
    sequence: str | None
    values: list[int]
    format: str
    replayed: bool

    @property
    def texts(self) -> list[str]:
        """Numbers as the format of their sequence writes them, and IDs in digits: JSON numbers have only 53 bits."""
        place = PLACE.search(self.format)
        return [self.format.replace(place[0], str(value).zfill(int(place[1] or 1))) for value in self.values]


@dataclass
class _Wait:
    """A call that waits for its reply, and the record that is sent again until the reply is there."""

    sequence: str | None
    count: int
    correlation_id: str
    headers: dict
    deadline: float
    pause_s: float
    send_at: float = 0
    future: Future = field(default_factory=Future)
    refusal: IdallocError | None = None
    unsent: object = "Kafka has not acknowledged it"

    def acknowledged(self, error: KafkaError | None, _record) -> None:
        self.unsent = error
        if error is not None:
            self.send_at = time.monotonic() + 0.5


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
        sending = {"partitioner": "murmur2_random", "linger.ms": 1, "message.timeout.ms": 10_000}
        self._producer = Producer({**sending, **common})
        self._consumer = Consumer({**common, "group.id": "idalloc-client", "enable.auto.commit": False})
        self._lock = threading.Condition()
        self._waits: dict[bytes, list[_Wait]] = {}
        self._stock, self._refill = deque(), None  # (when it was asked for, ID), and the Future of more
        self._trouble, self._closed = "", False
        self._where = self._follow()
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

    def numbers(self, sequence: str, count: int, correlation_id: str, *, timeout_s: float | None = None) -> Batch:
        """The next numbers of a sequence, for the document with this ID: a retry gets the same ones."""
        return self.submit(count, correlation_id=correlation_id, sequence=sequence, timeout_s=timeout_s).result()

    def submit(
        self, count: int = 1, *, correlation_id: str | None = None, sequence: str | None = None,
        timeout_s: float | None = None,
    ) -> Future:  # fmt: skip
        """The same without waiting: numbers with `sequence`, else IDs. A callback of the Future must not block."""
        correlation_id = str(uuid.uuid4()) if correlation_id is None else correlation_id
        key = correlation_id.encode()
        if not 0 < len(key) <= 256:
            raise IdallocError("INVALID_CORRELATION_ID", "a correlation ID has 1 to 256 bytes", correlation_id)
        headers = {"kafka_correlationId": key, "idalloc-count": str(count).encode(), **self._where}
        if sequence is not None:
            headers["idalloc-sequence"] = sequence.encode()
        deadline = time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        wait = _Wait(sequence, count, correlation_id, headers, deadline, self._resend_s)
        wait.future.set_running_or_notify_cancel()  # from now on it can't be cancelled, such as by asyncio
        with self._lock:
            if self._closed:
                raise IdallocError("CLIENT_CLOSED", "the client is closed", correlation_id)
            self._waits.setdefault(key, []).append(wait)
            self._send(wait)
        return wait.future

    def next_id(self, timeout_s: float | None = None) -> int:
        """An ID from memory, at most `max_age_s` old; waits only while there is none, and then raises BUFFER_EMPTY."""
        deadline = time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        with self._lock:
            while True:
                while self._stock and self._stock[0][0] < time.monotonic() - self._max_age_s:
                    self._stock.popleft()
                if len(self._stock) < self._buffer / 2 and self._refill is None:
                    asked_at, self._refill = time.monotonic(), self.submit(self._buffer)
                    self._refill.add_done_callback(lambda batch: self._filled(batch, asked_at))
                if self._stock:
                    return self._stock.popleft()[1]
                refill = self._refill
                in_time = refill is None or self._lock.wait_for(refill.done, max(0, deadline - time.monotonic()))
                error = refill.exception() if refill is not None and in_time else None
                if error is not None or not in_time:
                    raise IdallocError("BUFFER_EMPTY", f"no ID in memory: {error or 'no reply'}", "", 0.5) from error

    def close(self) -> None:
        """Ends the client; calls that still wait fail with CLIENT_CLOSED."""
        if not self._closed:
            self._closed = True
            self._thread.join()
            self._producer.flush(1)
            self._consumer.close()

    def _filled(self, batch: Future, asked_at: float) -> None:
        with self._lock:
            self._refill = None
            if batch.exception() is None:  # else the call that finds the buffer empty gets it
                self._stock.extend((asked_at, id) for id in batch.result().values)
            self._lock.notify_all()

    def _follow(self) -> dict:
        """Reads one partition of the reply topic from its end on. Returns the headers that name it."""
        try:
            for topic in (self._request_topic, self._reply_topic):
                about = self._consumer.list_topics(topic, self._timeout_s).topics[topic]
                if about.error is not None:
                    raise KafkaException(about.error)
            partition = random.choice(list(about.partitions))
            _, end = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), self._timeout_s)
        except KafkaException as error:
            missing = error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
            why = f"{error.args[0].str()}: check brokers and topics, or create them: idalloc topics init"
            raise IdallocError("TOPIC_INVALID" if missing else "KAFKA_UNAVAILABLE", why) from error
        self._consumer.assign([TopicPartition(self._reply_topic, partition, end)])
        return {"kafka_replyTopic": self._reply_topic.encode(), "kafka_replyPartition": str(partition).encode()}

    def _run(self) -> None:
        due = 0.0
        try:
            while not self._closed:
                record = self._consumer.poll(0.1)
                if record is not None:
                    self._trouble = "" if record.error() is None else record.error().str()
                if record is not None and record.error() is None and record.key() in self._waits:
                    self._answer(record)
                self._producer.poll(0)
                if time.monotonic() >= due:
                    due = self._send_due()
        finally:
            with self._lock:
                self._closed = True
                for wait in [wait for waits in self._waits.values() for wait in waits]:
                    self._end(wait, IdallocError("CLIENT_CLOSED", "the client is closed", wait.correlation_id))

    def _send_due(self) -> float:
        """Sends what has no reply yet, ever more rarely, and ends what waited too long. Returns when to do so again."""
        now = time.monotonic()
        with self._lock:
            for wait in [wait for waits in self._waits.values() for wait in waits]:
                if now >= wait.send_at:
                    self._send(wait)
                if now < wait.deadline:
                    continue
                code, why = "NO_REPLY", f"no reply in time: is a worker running? {self._trouble}"
                if wait.unsent is not None:
                    code, why, wait.refusal = "KAFKA_UNAVAILABLE", f"the request could not be sent: {wait.unsent}", None
                self._end(wait, wait.refusal or IdallocError(code, why, wait.correlation_id))
        return now + 0.1

    def _send(self, wait: _Wait) -> None:
        key = (wait.sequence or wait.correlation_id).encode()
        wait.send_at = time.monotonic() + wait.pause_s * random.uniform(1, 1.25)
        try:
            self._producer.produce(self._request_topic, key=key, headers=wait.headers, on_delivery=wait.acknowledged)
        except BufferError as full:  # of librdkafka's queue
            return wait.acknowledged(full, None)
        # Only the first record shows how old the request is, so each later one names that time.
        wait.headers.setdefault("idalloc-first-sent", str(time.time_ns() // 1_000_000).encode())
        wait.pause_s = min(2 * wait.pause_s, MAX_PAUSE_S)

    def _answer(self, record) -> None:
        try:
            found = decode_reply(record.key(), record.value() or b"", dict(record.headers() or []))
        except (ValueError, IndexError):  # no worker wrote it, so it is not the reply
            return
        with self._lock:
            for wait in list(self._waits.get(record.key(), [])):
                if not isinstance(found, IdallocError):
                    if (found.sequence, len(found.values)) == (wait.sequence, wait.count):  # else of another request
                        self._end(wait, found)
                elif found.code != "ANSWERED_BEFORE":  # which refuses an earlier record
                    pause_s = found.retry_after_s or wait.pause_s
                    wait.refusal, wait.send_at = found, time.monotonic() + pause_s * random.uniform(1, 1.25)
                    if not found.retryable or time.monotonic() + pause_s >= wait.deadline:
                        self._end(wait, found)

    def _end(self, wait: _Wait, outcome) -> None:
        key = wait.correlation_id.encode()
        self._waits[key].remove(wait)
        if not self._waits[key]:
            del self._waits[key]
        settle = wait.future.set_exception if isinstance(outcome, IdallocError) else wait.future.set_result
        settle(outcome)


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


def decode_reply(key: bytes, value: bytes, headers: dict) -> Batch | IdallocError:
    """What a reply has. Raises ValueError or IndexError for what no worker sends."""
    avro = _Avro(value[10:])
    name = avro.text()
    if value[:10] not in SCHEMAS or name.encode() != key:
        raise ValueError("it is no reply to its key")
    branch, sequence, form, more = avro.long(), None, "{number}", 0
    if branch == 1:
        after = headers.get("idalloc-retry-after-ms")
        return IdallocError(avro.text(), avro.text(), name, None if after is None else max(0.05, int(after) / 1_000))
    if branch == 0:  # a block of runs and its end, no single IDs, the step
        runs = [(avro.long(), avro.long()) for _ in range(avro.long())]
        more, step = avro.long() or avro.long(), avro.long()
    else:
        sequence, runs, step, form = avro.text(), [(avro.long(), avro.long())], avro.long(), avro.text() or form
    if more or sum(count for _, count in runs) > 100_000 or PLACE.search(form) is None:
        raise ValueError("no worker sends it")
    values = [first + i * step for first, count in runs for i in range(count)]
    return Batch(name, sequence, values, form, "idalloc-replayed" in headers)
