"""A service for tests: a call on each line of standard input, its outcome on one of standard output. Usage: BROKERS REQUESTS REPLIES"""

import json
import sys

from idalloc_client import IdallocClient, IdallocError

brokers, requests, replies = sys.argv[1:]
begun = None


def serve(client: IdallocClient, call: dict) -> list[str]:
    global begun
    timeout_s = call["timeout_ms"] / 1_000 if "timeout_ms" in call else None
    if "begin" in call:
        begun = client.submit(1, correlation_id=call["begin"])
        return []
    if "close" in call:
        client.close()
        return begun.result()
    if "many" in call:
        futures = [client.submit(call["count"]) for _ in range(call["many"])]
        return [str(id) for future in futures for id in future.result().values]
    if "next" in call:
        return [str(client.next_id(timeout_s)) for _ in range(call["next"])]
    if "sequence" in call:
        return client.numbers(call["sequence"], call["count"], call["id"], timeout_s=timeout_s).texts
    return client.request(call["count"], correlation_id=call["id"], timeout_s=timeout_s).texts


def refused(error: IdallocError) -> dict:
    return {"code": error.code, "retryable": error.retryable, "correlation_id": error.correlation_id}


def outcome(client: IdallocClient, call: dict) -> dict:
    try:
        return {"values": serve(client, call)}
    except IdallocError as error:
        return refused(error)


try:
    settings = {"timeout_s": 240, "resend_s": 1, "buffer": 500, "max_age_s": 300}
    with IdallocClient(brokers, replies, request_topic=requests, **settings) as client:
        for line in sys.stdin:
            print(json.dumps(outcome(client, json.loads(line))), flush=True)
except IdallocError as error:
    print(json.dumps(refused(error)), flush=True)
    raise SystemExit(1) from None
