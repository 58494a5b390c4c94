"""Reads a whole ledger and the replies of some topics, and checks them: one batch for each correlation ID, no ID twice.

ledger.py --brokers localhost:9092 --ledger-topic id.ledger id.replies.orders
"""

import argparse
import json

from idalloc import TIMEOUT_S, Message, bounds, consumer, expand

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--brokers", default="localhost:9092")
parser.add_argument("--ledger-topic", default="id.ledger")
parser.add_argument("--ids", action="store_true", help="print the IDs of each correlation ID as well")
parser.add_argument("reply_topics", nargs="*")
args = parser.parse_args()
faults: list[str] = []


def records(topic: str):
    """All records up to the end that the topic has now, in log order within each partition."""
    reader = consumer(args.brokers)
    for begin, end in bounds(reader, topic):
        if begin.offset == end.offset:
            continue
        reader.assign([begin])
        position = begin.offset
        while position < end.offset:
            record = reader.poll(TIMEOUT_S)
            if record is None:
                raise SystemExit(f"{topic}/{begin.partition} returned no record at offset {position} within {TIMEOUT_S} s")
            if record.error():
                raise SystemExit(str(record.error()))
            yield record
            position = record.offset() + 1
    reader.close()


def name(correlation_id: bytes) -> str:
    return correlation_id.decode(errors="backslashreplace")


# The first entry of a key decides. Later ones are losers: their IDs are in no reply, and must not repeat others.
decided: dict[str, list[int]] = {}
losers = 0
owners: dict[int, bytes] = {}
entry_of = Message("ledger-entry")
sequences = Message("ledger-sequence")
for record in records(args.ledger_topic):
    if record.value().startswith(sequences.frame):
        continue  # numbers of a sequence, not IDs
    batch = entry_of.decode(record.value())["batch"]
    if batch is None:
        continue  # a marker
    ids = expand(batch)
    for id in ids:
        # An append whose answer was lost may be in the log twice, byte for byte: that is one batch.
        if owners.setdefault(id, record.value()) != record.value():
            faults.append(f"ID {id} is in two batches")
    correlation_id = name(record.key()[1:])
    if decided.setdefault(correlation_id, ids) is not ids:
        losers += 1

replies = 0
reply_of = Message("id-reply")
numbers = Message("id-reply-2")
for topic in args.reply_topics:
    for record in records(topic):
        if record.value().startswith(numbers.frame):
            continue
        reply = reply_of.decode(record.value())
        if "code" in reply["result"]:
            continue
        replies += 1
        # A request is named by its request ID if it has one. Its correlation ID may be another one for each try.
        correlation_id = name(dict(record.headers() or []).get("idalloc-request-id") or reply["correlation_id"])
        if decided.get(correlation_id) != expand(reply["result"]):
            faults.append(f"{topic}/{record.partition()} at {record.offset()}: differs from the ledger's decision")

found = {"decisions": len(decided), "replies": replies, "losers": losers, "faults": faults[:100]}
if args.ids:
    found["decided"] = {correlation_id: [str(id) for id in ids] for correlation_id, ids in decided.items()}
print(json.dumps(found))
raise SystemExit(1 if faults else 0)
