// Package idalloc is a client of idalloc for Go services, to copy; it needs franz-go and nothing else:
//
//	client, err := idalloc.Open(ctx, idalloc.Options{Brokers: brokers, ReplyTopic: "id.replies.orders"})
//	defer client.Close()
//	ids, err := client.Request(ctx, 3, "order-4711")                      // the same three at each retry
//	invoice, err := client.Numbers(ctx, "invoices/2027", 1, "order-4711") // invoice.Texts()[0] is INV-000001
//
// One goroutine reads the replies of all calls. A call sends its record again until the reply is there, waits for as
// long as a temporary refusal says, and ends with its context, or after Options.Timeout.
package idalloc

import (
	"cmp"
	"context"
	crypto "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const maxPause, shortPause = 30 * time.Second, 500 * time.Millisecond

var (
	retryable = []string{"QUOTA_EXCEEDED", "OVERTAKEN", "SCHEMA_REGISTRY_UNAVAILABLE", "NO_REPLY", "KAFKA_UNAVAILABLE"}
	// schemas are how replies begin: without and with numbers.
	schemas = []string{"\xc3\x01\x51\x66\x40\x92\x08\x07\x2a\xe3", "\xc3\x01\x8d\xf7\x10\xa8\xde\x41\xf8\x87"}
	// place is where a format has the number: {number}, or {number:6} for at least six digits.
	place = regexp.MustCompile(`\{number:?(\d*)\}`)
)

// Error says why there are no IDs: one of idalloc's error codes, and a message with the cause and the remedy.
type Error struct {
	Code, Message, CorrelationID string
	Retryable                    bool          // the same call may succeed later, under the same correlation ID
	RetryAfter                   time.Duration // when it may; 0 if nobody knows
	cause                        error
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }

// Unwrap returns the error of the context or of Kafka that is the cause, or nil.
func (e *Error) Unwrap() error { return e.cause }

func failure(code, message, correlationID string, cause error) *Error {
	return &Error{code, message, correlationID, slices.Contains(retryable, code), 0, cause}
}

// Batch has IDs, or numbers of a sequence, that no other request gets.
type Batch struct {
	CorrelationID, Sequence, Format string // Sequence and Format are empty for IDs
	Values                          []int64
	Replayed                        bool // the correlation ID had them already
	refusal                         *Error
}

// Texts returns numbers as the format of their sequence writes them, and IDs in digits.
func (b *Batch) Texts() []string {
	format := place.ReplaceAllString(strings.ReplaceAll(cmp.Or(b.Format, "{number}"), "%", "%%"), "%0${1}d")
	texts := make([]string, len(b.Values))
	for i, value := range b.Values {
		texts[i] = fmt.Sprintf(format, value)
	}
	return texts
}

// Options of a client. Brokers and ReplyTopic are required, the others have defaults.
type Options struct {
	Brokers      []string
	ReplyTopic   string        // from `idalloc topics init --reply-topic NAME`; instances of a service may share it
	RequestTopic string        // id.requests
	Timeout      time.Duration // the time limit of a call: 30 s
	ResendAfter  time.Duration // the first pause without a reply: 3 s; each later one is twice as long, up to 30 s
	Kafka        []kgo.Opt     // such as TLS and a login
}

// Client requests IDs and numbers. Any goroutine may call its methods.
type Client struct {
	options   Options
	kafka     *kgo.Client
	partition string
	closing   context.Context
	cancel    context.CancelFunc
	reading   sync.WaitGroup
	mu        sync.Mutex
	trouble   error                    // why replies can't be read now
	calls     map[string][]chan *Batch // by correlation ID
}

// Open connects, and reads one partition of the reply topic from its end on, so that no reply is missed. It fails with
// TOPIC_INVALID if a topic does not exist, and with KAFKA_UNAVAILABLE if no broker answers in time.
func Open(ctx context.Context, options Options) (*Client, error) {
	options.RequestTopic = cmp.Or(options.RequestTopic, "id.requests")
	options.Timeout = cmp.Or(options.Timeout, 30*time.Second)
	options.ResendAfter = cmp.Or(options.ResendAfter, 3*time.Second)
	// A record that is there twice gets the same batch. So Kafka need not remove duplicates, and a send ends in time.
	own := []kgo.Opt{
		kgo.SeedBrokers(options.Brokers...), kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()), kgo.ProducerLinger(0),
		kgo.DisableIdempotentWrite(), kgo.RecordDeliveryTimeout(10 * time.Second),
	}
	kafka, err := kgo.NewClient(append(own, options.Kafka...)...)
	if err != nil {
		return nil, failure("CONFIG_INVALID", err.Error(), "", err)
	}
	ctx, cancel := context.WithTimeout(ctx, options.Timeout)
	defer cancel()
	ends, err := kadm.NewClient(kafka).ListEndOffsets(ctx, options.RequestTopic, options.ReplyTopic)
	end := ends[options.ReplyTopic][rand.Int32N(max(1, int32(len(ends[options.ReplyTopic]))))]
	code, err := "KAFKA_UNAVAILABLE", cmp.Or(err, end.Err)
	for topic, partitions := range ends {
		if missing := partitions[-1].Err; missing != nil {
			code, err = "TOPIC_INVALID", fmt.Errorf("topic %s: %w: create it with 'idalloc topics init'", topic, missing)
		}
	}
	if err != nil {
		kafka.Close()
		return nil, failure(code, err.Error(), "", err)
	}
	kafka.AddConsumePartitions(kadm.ListedOffsets{options.ReplyTopic: {end.Partition: end}}.KOffsets())
	c := &Client{options: options, kafka: kafka}
	c.calls, c.partition = map[string][]chan *Batch{}, strconv.Itoa(int(end.Partition))
	c.closing, c.cancel = context.WithCancel(context.Background())
	c.reading.Go(c.read)
	return c, nil
}

// Close ends the client. Calls that still wait fail with CLIENT_CLOSED.
func (c *Client) Close() {
	c.cancel()
	c.reading.Wait()
	c.kafka.Close()
}

// Request returns 1 to 100,000 new IDs; under a correlation ID that had some, the same again. An empty one becomes a
// random one. After NO_REPLY the IDs may have been decided: a retry with the CorrelationID of the error gets them.
func (c *Client) Request(ctx context.Context, count int, correlationID string) (*Batch, error) {
	return c.call(ctx, "", count, cmp.Or(correlationID, crypto.Text()))
}

// Numbers returns the next numbers of a sequence, for the document with this ID: a retry gets the same ones.
func (c *Client) Numbers(ctx context.Context, sequence string, count int, correlationID string) (*Batch, error) {
	return c.call(ctx, sequence, count, correlationID)
}

func (c *Client) call(ctx context.Context, sequence string, count int, id string) (*Batch, error) {
	if len(id) == 0 || len(id) > 256 {
		return nil, failure("INVALID_CORRELATION_ID", "a correlation ID has 1 to 256 bytes", id, nil)
	}
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	replies := make(chan *Batch, 8)
	c.update(id, func(calls []chan *Batch) []chan *Batch { return append(calls, replies) })
	defer c.update(id, func(calls []chan *Batch) []chan *Batch {
		return slices.DeleteFunc(calls, func(other chan *Batch) bool { return other == replies })
	})
	header := func(key, value string) kgo.RecordHeader { return kgo.RecordHeader{Key: key, Value: []byte(value)} }
	headers := []kgo.RecordHeader{
		header("kafka_correlationId", id), header("kafka_replyTopic", c.options.ReplyTopic),
		header("kafka_replyPartition", c.partition), header("idalloc-count", strconv.Itoa(count)),
	}
	if sequence != "" {
		headers = append(headers, header("idalloc-sequence", sequence))
	}
	// Only the first record shows how old the request is, so each later one names that time.
	again := append(slices.Clone(headers), header("idalloc-first-sent", strconv.FormatInt(time.Now().UnixMilli(), 10)))
	sent, timer := make(chan error, 64), time.NewTimer(0)
	defer timer.Stop()
	pause, refused, unsent := c.options.ResendAfter, (*Error)(nil), errors.New("Kafka has not acknowledged it")
	for {
		select {
		case <-timer.C:
			record := &kgo.Record{Topic: c.options.RequestTopic, Key: []byte(cmp.Or(sequence, id)), Headers: headers}
			c.kafka.TryProduce(c.closing, record, func(_ *kgo.Record, err error) { sent <- err })
			timer.Reset(spread(pause))
			headers, pause = again, min(2*pause, maxPause)
		case unsent = <-sent:
			if unsent != nil {
				timer.Reset(spread(shortPause))
			}
		case batch := <-replies:
			if batch.refusal == nil && batch.Sequence == sequence && len(batch.Values) == count {
				return batch, nil
			} else if batch.refusal == nil { // another request has the same correlation ID
				continue
			}
			refused = batch.refusal
			wait := cmp.Or(refused.RetryAfter, pause)
			if deadline, _ := ctx.Deadline(); !refused.Retryable || time.Until(deadline) < wait {
				return nil, refused
			}
			timer.Reset(spread(wait))
		case <-ctx.Done():
			c.mu.Lock()
			defer c.mu.Unlock()
			cause := errors.Join(ctx.Err(), unsent, c.trouble)
			if unsent != nil {
				return nil, failure("KAFKA_UNAVAILABLE", "the request could not be sent: "+cause.Error(), id, cause)
			} else if refused != nil {
				return nil, refused
			}
			return nil, failure("NO_REPLY", "no reply in time, is a worker running? "+cause.Error(), id, cause)
		case <-c.closing.Done():
			return nil, failure("CLIENT_CLOSED", "the client is closed", id, nil)
		}
	}
}

// update changes who waits under a correlation ID.
func (c *Client) update(id string, change func([]chan *Batch) []chan *Batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[id] = change(c.calls[id]); len(c.calls[id]) == 0 {
		delete(c.calls, id)
	}
}

// spread adds up to a quarter, so that clients do not all send again at once.
func spread(pause time.Duration) time.Duration { return pause + rand.N(pause/4+1) }

func (c *Client) read() {
	for c.closing.Err() == nil {
		fetches := c.kafka.PollFetches(c.closing)
		c.mu.Lock()
		c.trouble = fetches.Err()
		fetches.EachRecord(func(record *kgo.Record) {
			for _, replies := range c.calls[string(record.Key)] {
				if batch := decode(record); batch != nil && len(replies) < cap(replies) {
					replies <- batch
				}
			}
		})
		c.mu.Unlock()
	}
}

// decode returns nil for what no worker sends, and for what a replay refuses, since that was sent before.
func decode(record *kgo.Record) *Batch {
	schema := string(record.Value[:min(10, len(record.Value))])
	rest, broken := record.Value[len(schema):], !slices.Contains(schemas, schema)
	long := func() int64 {
		value, size := binary.Varint(rest)
		broken, rest = broken || size <= 0, rest[max(size, 0):]
		return value
	}
	text := func() string {
		size := long()
		if broken = broken || size < 0 || size > int64(len(rest)); broken {
			return ""
		}
		found := string(rest[:size])
		rest = rest[size:]
		return found
	}
	batch := &Batch{CorrelationID: text()}
	add := func(first, count, step int64) {
		for ; count > 0 && len(batch.Values) <= 100_000; count-- { // no batch is larger
			batch.Values = append(batch.Values, first)
			first += step
		}
	}
	switch long() {
	case 0: // a block of runs and its end, no single IDs, the step
		var runs []int64
		for left := long(); left > 0 && !broken; left-- {
			runs = append(runs, long(), long())
		}
		broken = broken || long() != 0 || long() != 0
		step := long()
		for run := range slices.Chunk(runs, 2) {
			add(run[0], run[1], step)
		}
	case 1:
		batch.refusal = failure(text(), text(), batch.CorrelationID, nil)
		broken = broken || batch.refusal.Code == "ANSWERED_BEFORE"
	case 2:
		batch.Sequence = text()
		add(long(), long(), long())
		batch.Format = text()
	}
	if broken || batch.CorrelationID != string(record.Key) || !place.MatchString(cmp.Or(batch.Format, "{number}")) {
		return nil
	}
	for _, header := range record.Headers {
		batch.Replayed = batch.Replayed || header.Key == "idalloc-replayed"
		ms, err := strconv.ParseUint(string(header.Value), 10, 31)
		if header.Key == "idalloc-retry-after-ms" && err == nil && batch.refusal != nil {
			batch.refusal.Retryable, batch.refusal.RetryAfter = true, max(time.Duration(ms)*time.Millisecond, shortPause/10)
		}
	}
	return batch
}
