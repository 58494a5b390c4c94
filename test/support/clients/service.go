// A service for tests: a call on each line of standard input, its outcome on one of standard output.
// Usage: BROKERS REQUESTS REPLIES
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"idalloc.example/order/idalloc"
)

// asked is a call: Begin only begins one, and Close returns how that one ends when the client is closed.
type asked struct {
	ID, Sequence, Begin string
	Count, Many, Next   int
	TimeoutMs           int `json:"timeout_ms"`
	Close               bool
}

var (
	begun  = make(chan error, 1)
	buffer *idalloc.Buffer
)

func main() {
	client, err := idalloc.Open(context.Background(), idalloc.Options{
		Brokers: strings.Split(os.Args[1], ","), RequestTopic: os.Args[2], ReplyTopic: os.Args[3],
		Timeout: 4 * time.Minute, ResendAfter: time.Second,
	})
	if err != nil {
		fmt.Println(line(outcome(nil, err)))
		os.Exit(1)
	}
	defer client.Close()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var call asked
		if err := json.Unmarshal(lines.Bytes(), &call); err != nil {
			panic(err)
		}
		fmt.Println(line(serve(client, call)))
	}
}

func serve(client *idalloc.Client, call asked) map[string]any {
	ctx := context.Background()
	if call.TimeoutMs > 0 {
		limited, cancel := context.WithTimeout(ctx, time.Duration(call.TimeoutMs)*time.Millisecond)
		defer cancel()
		ctx = limited
	}
	switch {
	case call.Begin != "":
		go func() {
			_, err := client.Request(ctx, 1, call.Begin)
			begun <- err
		}()
		return outcome(&idalloc.Batch{}, nil)
	case call.Close:
		client.Close()
		return outcome(nil, <-begun)
	case call.Many > 0:
		batches := make(chan *idalloc.Batch)
		for range call.Many {
			go func() {
				batch, err := client.Request(ctx, call.Count, "")
				if err != nil {
					panic(err)
				}
				batches <- batch
			}()
		}
		all := &idalloc.Batch{}
		for range call.Many {
			all.Values = append(all.Values, (<-batches).Values...)
		}
		return outcome(all, nil)
	case call.Next > 0:
		if buffer == nil {
			buffer = idalloc.NewBuffer(client, 500, 5*time.Minute)
		}
		all := &idalloc.Batch{}
		for range call.Next {
			id, err := buffer.Next(ctx)
			if err != nil {
				return outcome(nil, err)
			}
			all.Values = append(all.Values, id)
		}
		return outcome(all, nil)
	case call.Sequence != "":
		return outcome(client.Numbers(ctx, call.Sequence, call.Count, call.ID))
	}
	return outcome(client.Request(ctx, call.Count, call.ID))
}

func outcome(batch *idalloc.Batch, err error) map[string]any {
	var refused *idalloc.Error
	if errors.As(err, &refused) {
		return map[string]any{"code": refused.Code, "retryable": refused.Retryable, "correlation_id": refused.CorrelationID}
	}
	if err != nil {
		panic(err)
	}
	return map[string]any{"values": batch.Texts()}
}

func line(found map[string]any) string {
	text, err := json.Marshal(found)
	if err != nil {
		panic(err)
	}
	return string(text)
}
