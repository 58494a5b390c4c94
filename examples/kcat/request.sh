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
partitions=$(kcat -L -b "$brokers" -t "$reply_topic" | grep -c '^ *partition ') || {
  echo "$reply_topic can't be read: create it with 'idalloc topics init --reply-topic $reply_topic'" >&2
  exit 1
}

# Reads from where the topic ends now. Only when that is known of each partition, the request is sent: no reply is missed. The
# time of a record is no help, since the reply to a retry has the time of the first one.
work=$(mktemp -d)
kcat -C -u -b "$brokers" -t "$reply_topic" -o end -f '%k %p %o\n' >"$work/replies" 2>"$work/log" &
reader=$!
trap 'kill $reader; rm -rf "$work"' EXIT
deadline=$(($(date +%s) + 30))
until [ "$(grep -o 'Reached end of topic .* \[[0-9]*\]' "$work/log" | sort -u | wc -l)" -eq "$partitions" ]; do
  if [ "$(date +%s)" -ge "$deadline" ]; then
    cat "$work/log" >&2
    exit 1
  fi
  sleep 0.1
done

# Key, delimiter and an empty value: without -K, kcat sends nothing for an empty line. The key leads to the partition that
# decides: the correlation ID, or the name of the sequence.
printf '%s|\n' "${sequence:-$correlation_id}" | kcat -P -b "$brokers" -t "$request_topic" -K '|' \
  -H "kafka_correlationId=$correlation_id" -H "kafka_replyTopic=$reply_topic" -H "idalloc-count=$count" \
  ${sequence:+-H "idalloc-sequence=$sequence"}

deadline=$(($(date +%s) + 30))
while [ "$(date +%s)" -lt "$deadline" ]; do
  sleep 0.2
  found=$(awk -v id="$correlation_id" '$1 == id { print $2, $3; exit }' "$work/replies")
  [ -n "$found" ] || continue
  set -- $found
  value=$(kcat -C -q -b "$brokers" -t "$reply_topic" -p "$1" -o "$2" -c 1 -f '%s' | od -An -v -tx1)
  if [ -z "$sequence" ]; then
    echo "$value"
  else
    echo "$value" | LC_ALL=C awk -f "$(dirname "$0")/numbers.awk"
  fi
  exit
done
echo "no reply in 30 s: is a worker running?" >&2
exit 1
