"""Gives an order three IDs, or the next number of a sequence, and prints them:

python order.py localhost:9092 id.replies.orders order-4711
python order.py localhost:9092 id.replies.orders order-4711 invoices/2027
"""

import sys

from idalloc_client import IdallocClient, IdallocError

if len(sys.argv) not in (4, 5):
    raise SystemExit("usage: order.py BROKERS REPLY_TOPIC ORDER [SEQUENCE]")
brokers, reply_topic, order, *sequence = sys.argv[1:]
try:
    with IdallocClient(brokers, reply_topic) as client:
        batch = client.numbers(sequence[0], 1, order) if sequence else client.request(3, correlation_id=order)
except IdallocError as error:
    raise SystemExit(str(error)) from None
print("\n".join(batch.texts))
