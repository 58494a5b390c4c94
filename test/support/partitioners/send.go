// Sends a request for each correlation ID, one a line of standard input, by franz-go with its default partitioner:
//
//	send [--no-key] BROKERS REQUEST_TOPIC REPLY_TOPIC COUNT TRACEPARENT
package main

import (
	"bufio"
	"context"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	args := os.Args[1:]
	withKey := args[0] != "--no-key"
	if !withKey {
		args = args[1:]
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(args[0], ",")...), kgo.DefaultProduceTopic(args[1]))
	if err != nil {
		panic(err)
	}
	defer client.Close()
	var records []*kgo.Record
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		record := &kgo.Record{Headers: []kgo.RecordHeader{
			{Key: "kafka_correlationId", Value: []byte(lines.Text())}, {Key: "kafka_replyTopic", Value: []byte(args[2])},
			{Key: "idalloc-count", Value: []byte(args[3])}, {Key: "traceparent", Value: []byte(args[4])},
		}}
		if withKey {
			record.Key = record.Headers[0].Value
		}
		records = append(records, record)
	}
	if err := client.ProduceSync(context.Background(), records...).FirstErr(); err != nil {
		panic(err)
	}
}
