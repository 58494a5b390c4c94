#!/bin/sh
# Requests IDs with headers alone, and prints the reply's value in hex:
#   request.sh BROKERS REQUEST_TOPIC REPLY_TOPIC COUNT
set -eu
if [ $# -ne 4 ]; then
  echo "usage: request.sh BROKERS REQUEST_TOPIC REPLY_TOPIC COUNT (needs kcat)" >&2
  exit 2
fi
brokers=$1 request_topic=$2 reply_topic=$3 count=$4
if ! kcat -C -q -b "$brokers" -t "$reply_topic" -o end -e; then
  echo "$reply_topic can't be read: create it with 'idalloc topics init --reply-topic $reply_topic'" >&2
  exit 1
fi
correlation_id=kcat-$(date +%s)-$$
# From a minute ago, since the broker's clock may differ from this machine's.
since=$(($(date +%s) * 1000 - 60000))

# Key, delimiter and an empty value: without -K, kcat sends nothing for an empty line.
printf '%s|\n' "$correlation_id" | kcat -P -b "$brokers" -t "$request_topic" -K '|' \
  -H "kafka_correlationId=$correlation_id" -H "kafka_replyTopic=$reply_topic" -H "idalloc-count=$count"

deadline=$(($(date +%s) + 30))
while [ "$(date +%s)" -lt "$deadline" ]; do
  sleep 0.2
  # Partition and offset of the record with our key; -e stops kcat at the current end of the topic.
  found=$(kcat -C -q -b "$brokers" -t "$reply_topic" -o "s@$since" -e -f '%k %p %o\n' | grep "^$correlation_id ") || continue
  set -- $found
  kcat -C -q -b "$brokers" -t "$reply_topic" -p "$2" -o "$3" -c 1 -f '%s' | od -An -v -tx1
  exit 0
done
echo "no reply in 30 s: is a worker running?" >&2
exit 1
