"""A service for tests: a call on each line of standard input, its outcome on one of standard output. Usage: BROKERS REQUESTS REPLIES"""

import json
import sys

from idalloc_client import IdallocClient, IdallocError

brokers, requests, replies = sys.argv[1:]
with IdallocClient(brokers, replies, request_topic=requests, timeout_s=240, resend_s=1, buffer=500) as client:
    for line in sys.stdin:
        call = json.loads(line)
        try:
            if "next" in call:
                found = {"ids": [str(client.next_id()) for _ in range(call["next"])]}
            elif "sequence" in call:
                found = {"numbers": client.numbers(call["sequence"], call["count"], call["id"]).texts}
            else:
                found = {"ids": [str(id) for id in client.request(call["count"], correlation_id=call["id"]).ids]}
        except IdallocError as error:
            found = {"code": error.code, "retryable": error.retryable, "correlation_id": error.correlation_id}
        print(json.dumps(found), flush=True)
