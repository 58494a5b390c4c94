"""Requests IDs, or numbers of a sequence, and prints them:

request.py --brokers localhost:9092 --reply-topic id.replies.orders --count 5
request.py --brokers localhost:9092 --reply-topic id.replies.orders --sequence invoices/2027 --correlation-id order-4711
"""

import argparse
import json
import time
import uuid

from confluent_kafka import Producer
from idalloc import TIMEOUT_S, Message, bounds, consumer, decode_reply, expand, texts

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--brokers", default="localhost:9092")
parser.add_argument("--request-topic", default="id.requests")
parser.add_argument("--reply-topic", default="id.replies.orders")
parser.add_argument("--count", type=int, default=1)
parser.add_argument("--correlation-id", help="a repeated one returns the same IDs or numbers")
parser.add_argument("--sequence", help="take numbers of this sequence instead of IDs")
args = parser.parse_args()
if args.sequence and not args.correlation_id:
    parser.error("--sequence needs --correlation-id: the ID of the document, since another one takes other numbers")
correlation_id = (args.correlation_id or str(uuid.uuid4())).encode()

if args.sequence:
    key, value = args.sequence, Message("id-request-2").encode({"count": args.count, "sequence": args.sequence})
else:
    key, value = correlation_id, Message("id-request").encode({"count": args.count})

# Where the reply topic ends is known before the request is sent, so the reply can't be missed.
reader = consumer(args.brokers)
reader.assign([end for _, end in bounds(reader, args.reply_topic)])

producer = Producer({"bootstrap.servers": args.brokers})
producer.produce(
    args.request_topic,
    key=key,
    value=value,
    headers={"kafka_correlationId": correlation_id, "kafka_replyTopic": args.reply_topic},
)
if producer.flush(TIMEOUT_S) > 0:
    raise SystemExit("the request was not acknowledged")

deadline = time.monotonic() + TIMEOUT_S
while time.monotonic() < deadline:
    record = reader.poll(1)
    if record is None or record.error() or record.key() != correlation_id:
        continue
    result = decode_reply(record.value())["result"]
    if "code" in result:
        raise SystemExit(f"{result['code']}: {result['message']}")
    # IDs have 64 bits and JSON numbers 53, so they are printed as text.
    found = {"numbers": texts(result)} if args.sequence else {"ids": [str(id) for id in expand(result)]}
    replayed = any(name == "idalloc-replayed" for name, _ in record.headers())
    print(json.dumps({**found, "replayed": replayed}))
    break
else:
    raise SystemExit(f"no reply in {TIMEOUT_S} s: is a worker running?")
