"""Requests IDs and prints them: request.py --brokers localhost:9092 --reply-topic id.replies.orders --count 5"""

import argparse
import json
import time
import uuid

from confluent_kafka import Producer
from idalloc import TIMEOUT_S, Message, bounds, consumer, expand

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--brokers", default="localhost:9092")
parser.add_argument("--request-topic", default="id.requests")
parser.add_argument("--reply-topic", default="id.replies.orders")
parser.add_argument("--count", type=int, default=1)
parser.add_argument("--correlation-id", default=str(uuid.uuid4()), help="a repeated one returns the same IDs")
args = parser.parse_args()
correlation_id = args.correlation_id.encode()

# Where the reply topic ends is known before the request is sent, so the reply can't be missed.
reader = consumer(args.brokers)
reader.assign([end for _, end in bounds(reader, args.reply_topic)])

producer = Producer({"bootstrap.servers": args.brokers})
producer.produce(
    args.request_topic,
    key=correlation_id,
    value=Message("id-request").encode({"count": args.count}),
    headers={"kafka_correlationId": correlation_id, "kafka_replyTopic": args.reply_topic},
)
if producer.flush(TIMEOUT_S) > 0:
    raise SystemExit("the request was not acknowledged")

deadline = time.monotonic() + TIMEOUT_S
while time.monotonic() < deadline:
    record = reader.poll(1)
    if record is None or record.error() or record.key() != correlation_id:
        continue
    result = Message("id-reply").decode(record.value())["result"]
    if "code" in result:
        raise SystemExit(f"{result['code']}: {result['message']}")
    # IDs have 64 bits and JSON numbers 53, so they are printed as text.
    replayed = any(name == "idalloc-replayed" for name, _ in record.headers())
    print(json.dumps({"ids": [str(id) for id in expand(result)], "replayed": replayed}))
    break
else:
    raise SystemExit(f"no reply in {TIMEOUT_S} s: is a worker running?")
