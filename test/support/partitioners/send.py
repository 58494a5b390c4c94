"""Sends a request for each correlation ID, one a line of standard input, by confluent-kafka with its default partitioner:
send.py [--no-key] BROKERS REQUEST_TOPIC REPLY_TOPIC COUNT TRACEPARENT (with examples/python in PYTHONPATH)"""

import argparse
import sys

from confluent_kafka import Producer
from idalloc import TIMEOUT_S, Message

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("brokers")
parser.add_argument("request_topic")
parser.add_argument("reply_topic")
parser.add_argument("count", type=int)
parser.add_argument("traceparent")
parser.add_argument("--no-key", action="store_true")
args = parser.parse_args()

refused = []


def delivered(error, _record):
    if error is not None:
        refused.append(error)


producer = Producer({"bootstrap.servers": args.brokers})
value = Message("id-request").encode({"count": args.count})
for correlation_id in sys.stdin.read().split():
    producer.produce(
        args.request_topic,
        key=None if args.no_key else correlation_id,
        value=value,
        headers={
            "kafka_correlationId": correlation_id,
            "kafka_replyTopic": args.reply_topic,
            "traceparent": args.traceparent,
        },
        on_delivery=delivered,
    )
unsent = producer.flush(TIMEOUT_S)
if unsent > 0 or refused:
    raise SystemExit(f"{unsent} requests were not acknowledged, {len(refused)} were refused: {refused[:1]}")
