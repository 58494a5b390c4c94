// Requests IDs with franz-go, and prints a line of JSON for each correlation ID:
//
//	go run . -reply-topic id.replies.orders -count 5 order-4711 order-4712
//
// franz-go hashes keys as Java does, so the correlation ID as the key sends a request to its home partition.
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/avro"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const timeout = 60 * time.Second

var (
	brokers      = flag.String("brokers", "localhost:9092", "brokers, separated by commas")
	requestTopic = flag.String("request-topic", "id.requests", "topic of the requests")
	replyTopic   = flag.String("reply-topic", "id.replies.orders", "topic of the replies")
	count        = flag.Int64("count", 1, "IDs for each correlation ID")
	schemas      = flag.String("schemas", "../../schemas", "directory of the Avro schemas")
	noKey        = flag.Bool("no-key", false, "send records without a key: the IDs are the same, but a worker must forward the requests")
)

type reply struct {
	CorrelationID []byte         `avro:"correlation_id"`
	Result        map[string]any `avro:"result"` // a batch or an error
}

func main() {
	flag.Parse()
	ids := flag.Args()
	if len(ids) == 0 {
		ids = []string{rand.Text()}
	}
	if err := request(ids); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// request sends all requests and returns when each is answered.
func request(ids []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	seeds := kgo.SeedBrokers(strings.Split(*brokers, ",")...)
	producer, err := kgo.NewClient(seeds)
	if err != nil {
		return err
	}
	defer producer.Close()
	// Where the reply topic ends is known before a request is sent, so no reply can be missed.
	ends, err := kadm.NewClient(producer).ListEndOffsets(ctx, *replyTopic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return fmt.Errorf("topic %s: %w", *replyTopic, err)
	}
	if err := send(ctx, producer, ids); err != nil {
		return err
	}
	consumer, err := kgo.NewClient(seeds, kgo.ConsumePartitions(ends.KOffsets()))
	if err != nil {
		return err
	}
	defer consumer.Close()
	return receive(ctx, consumer, ids)
}

func send(ctx context.Context, producer *kgo.Client, ids []string) error {
	schema, err := parse("id-request")
	if err != nil {
		return err
	}
	value, err := schema.AppendSingleObject(nil, map[string]any{"count": *count})
	if err != nil {
		return err
	}
	var records []*kgo.Record
	for _, id := range ids {
		headers := []kgo.RecordHeader{
			{Key: "kafka_correlationId", Value: []byte(id)},
			{Key: "kafka_replyTopic", Value: []byte(*replyTopic)},
		}
		// A reply has the trace headers of its request.
		if trace := os.Getenv("TRACEPARENT"); trace != "" {
			headers = append(headers, kgo.RecordHeader{Key: "traceparent", Value: []byte(trace)})
		}
		record := &kgo.Record{Topic: *requestTopic, Value: value, Headers: headers}
		if !*noKey {
			record.Key = []byte(id)
		}
		records = append(records, record)
	}
	return producer.ProduceSync(ctx, records...).FirstErr()
}

func receive(ctx context.Context, consumer *kgo.Client, ids []string) error {
	schema, err := parse("id-reply")
	if err != nil {
		return err
	}
	waiting := make(map[string]bool)
	for _, id := range ids {
		waiting[id] = true
	}
	for len(waiting) > 0 {
		fetches := consumer.PollFetches(ctx)
		if ctx.Err() != nil {
			return fmt.Errorf("%d requests without a reply in %v: is a worker running?", len(waiting), timeout)
		}
		if err := fetches.Err(); err != nil {
			return err
		}
		for _, record := range fetches.Records() {
			id := string(record.Key)
			if !waiting[id] {
				continue // another requester's reply, or a repeated one
			}
			delete(waiting, id)
			if err := show(schema, id, record.Value); err != nil {
				return err
			}
		}
	}
	return nil
}

// show prints IDs as text: they have 64 bits, and JSON numbers 53.
func show(schema *avro.Schema, id string, value []byte) error {
	var reply reply
	if _, err := schema.DecodeSingleObject(value, &reply); err != nil {
		return err
	}
	if code, refused := reply.Result["code"]; refused {
		return fmt.Errorf("%s: %s", code, reply.Result["message"])
	}
	found := []string{}
	step := reply.Result["step"].(int64)
	for _, element := range reply.Result["ranges"].([]any) {
		run := element.(map[string]any)
		for i := range int64(run["count"].(int32)) {
			found = append(found, strconv.FormatInt(run["first"].(int64)+i*step, 10))
		}
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"correlation_id": id, "ids": found})
}

func parse(name string) (*avro.Schema, error) {
	text, err := os.ReadFile(filepath.Join(*schemas, name+".avsc"))
	if err != nil {
		return nil, err
	}
	return avro.Parse(string(text))
}
