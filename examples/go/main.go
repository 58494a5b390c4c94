// Requests IDs, or numbers of a sequence, with franz-go, and prints a line of JSON for each correlation ID:
//
//	go run . -reply-topic id.replies.orders -count 5 order-4711 order-4712
//	go run . -reply-topic id.replies.orders -sequence invoices/2027 order-4711
//
// franz-go hashes keys as Java does, so the correlation ID as the key, or the name of the sequence, sends a request to its
// home partition.
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
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
	count        = flag.Int64("count", 1, "IDs or numbers for each correlation ID")
	sequence     = flag.String("sequence", "", "take numbers of this sequence instead of IDs")
	schemas      = flag.String("schemas", "../../schemas", "directory of the Avro schemas")
	noKey        = flag.Bool("no-key", false, "send records without a key: the IDs are the same, but a worker must forward the requests")
)

type reply struct {
	CorrelationID []byte         `avro:"correlation_id"`
	Result        map[string]any `avro:"result"` // a batch, numbers or an error
}

func main() {
	flag.Parse()
	ids := flag.Args()
	if len(ids) == 0 && *sequence != "" {
		fmt.Fprintln(os.Stderr, "name the correlation ID, best that of the document: another one takes other numbers")
		os.Exit(2)
	}
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
	name, body := "id-request", map[string]any{"count": *count}
	if *sequence != "" {
		name, body = "id-request-2", map[string]any{"count": *count, "sequence": *sequence}
	}
	schema, err := parse(name)
	if err != nil {
		return err
	}
	value, err := schema.AppendSingleObject(nil, body)
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
		if *sequence != "" {
			record.Key = []byte(*sequence)
		} else if !*noKey {
			record.Key = []byte(id)
		}
		records = append(records, record)
	}
	return producer.ProduceSync(ctx, records...).FirstErr()
}

func receive(ctx context.Context, consumer *kgo.Client, ids []string) error {
	ofIDs, err := parse("id-reply")
	if err != nil {
		return err
	}
	ofNumbers, err := parse("id-reply-2")
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
			var found reply
			// Numbers have a schema of their own, IDs and errors the first one. A value names its schema.
			if _, err := ofNumbers.DecodeSingleObject(record.Value, &found); err != nil {
				if _, err := ofIDs.DecodeSingleObject(record.Value, &found); err != nil {
					return err
				}
			}
			if err := show(id, found.Result); err != nil {
				return err
			}
		}
	}
	return nil
}

// show prints IDs as text: they have 64 bits, and JSON numbers 53.
func show(id string, result map[string]any) error {
	if code, refused := result["code"]; refused {
		return fmt.Errorf("%s: %s", code, result["message"])
	}
	line := map[string]any{"correlation_id": id}
	if _, numbered := result["sequence"]; numbered {
		numbers, err := texts(result)
		if err != nil {
			return err
		}
		line["numbers"] = numbers
	} else {
		line["ids"] = idsOf(result)
	}
	return json.NewEncoder(os.Stdout).Encode(line)
}

func idsOf(batch map[string]any) []string {
	found := []string{}
	for _, element := range batch["ranges"].([]any) {
		for _, id := range expand(element.(map[string]any), batch["step"].(int64)) {
			found = append(found, strconv.FormatInt(id, 10))
		}
	}
	return found
}

// place is where a format has the number: {number}, or {number:6} for at least six digits.
var place = regexp.MustCompile(`\{number(?::(\d+))?\}`)

// texts are the numbers of a sequence, each as its format writes it.
func texts(numbers map[string]any) ([]string, error) {
	format := numbers["format"].(string)
	if format == "" {
		format = "{number}"
	}
	at := place.FindStringSubmatch(format)
	if at == nil {
		return nil, fmt.Errorf("the format %s has no {number}", format)
	}
	digits, _ := strconv.Atoi(at[1])
	found := []string{}
	for _, number := range expand(numbers, numbers["step"].(int64)) {
		found = append(found, strings.Replace(format, at[0], fmt.Sprintf("%0*d", digits, number), 1))
	}
	return found, nil
}

// expand lists first, first + step, ...
func expand(run map[string]any, step int64) []int64 {
	found := make([]int64, run["count"].(int32))
	for i := range found {
		found[i] = run["first"].(int64) + int64(i)*step
	}
	return found
}

func parse(name string) (*avro.Schema, error) {
	text, err := os.ReadFile(filepath.Join(*schemas, name+".avsc"))
	if err != nil {
		return nil, err
	}
	return avro.Parse(string(text))
}
