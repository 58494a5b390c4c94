#!/bin/sh
# Requests IDs with headers alone, and prints the reply's value in hex; or numbers of a sequence, and prints them:
#   request.sh BROKERS REQUEST_TOPIC REPLY_TOPIC COUNT
#   request.sh BROKERS REQUEST_TOPIC REPLY_TOPIC COUNT CORRELATION_ID SEQUENCE
set -eu
if [ $# -ne 4 ] && [ $# -ne 6 ]; then
  echo "usage: request.sh BROKERS REQUEST_TOPIC REPLY_TOPIC COUNT [CORRELATION_ID SEQUENCE] (needs kcat)" >&2
  exit 2
fi
brokers=$1 request_topic=$2 reply_topic=$3 count=$4 correlation_id=${5:-kcat-$(date +%s)-$$} sequence=${6:-}
if ! kcat -C -q -b "$brokers" -t "$reply_topic" -o end -e; then
  echo "$reply_topic can't be read: create it with 'idalloc topics init --reply-topic $reply_topic'" >&2
  exit 1
fi
# From a minute ago, since the broker's clock may differ from this machine's.
since=$(($(date +%s) * 1000 - 60000))
# Partition and offset of each record with our key; -e stops kcat at the current end of the topic.
ours() {
  kcat -C -q -b "$brokers" -t "$reply_topic" -o "s@$since" -e -f '%k %p %o\n' | grep "^$correlation_id "
}
before=$(ours | wc -l) # replies to earlier tries

# Key, delimiter and an empty value: without -K, kcat sends nothing for an empty line. The key leads to the partition that
# decides: the correlation ID, or the name of the sequence.
printf '%s|\n' "${sequence:-$correlation_id}" | kcat -P -b "$brokers" -t "$request_topic" -K '|' \
  -H "kafka_correlationId=$correlation_id" -H "kafka_replyTopic=$reply_topic" -H "idalloc-count=$count" \
  ${sequence:+-H "idalloc-sequence=$sequence"}

deadline=$(($(date +%s) + 30))
while [ "$(date +%s)" -lt "$deadline" ]; do
  sleep 0.2
  found=$(ours | tail -n "+$((before + 1))")
  [ -n "$found" ] || continue
  set -- $found
  value=$(kcat -C -q -b "$brokers" -t "$reply_topic" -p "$2" -o "$3" -c 1 -f '%s' | od -An -v -tx1)
  if [ -z "$sequence" ]; then
    echo "$value"
  else
    echo "$value" | LC_ALL=C awk -f "$(dirname "$0")/numbers.awk"
  fi
  exit
done
echo "no reply in 30 s: is a worker running?" >&2
exit 1
