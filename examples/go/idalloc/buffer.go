package idalloc

import (
	"context"
	"errors"
	"time"
)

// Buffer has IDs in memory, for a service that can't wait for a reply each time; to copy beside client.go:
//
//	buffer := idalloc.NewBuffer(client, 1_000, time.Minute)
//	key, err := buffer.Next(ctx) // at once; without a worker, until the buffer is empty
//
// It requests the next batch while the last one is being used. Any goroutine may call Next.
type Buffer struct {
	client *Client
	maxAge time.Duration
	stock  chan stocked
	lack   chan error // why there are no more, for the calls that wait
}

type stocked struct {
	id    int64
	asked time.Time
}

// NewBuffer begins to request IDs: size of them, 2 to 200,000, in two batches. Next returns none that is older than
// maxAge, which bounds how far the order of IDs may be from that of their use. The buffer ends with its client.
func NewBuffer(client *Client, size int, maxAge time.Duration) *Buffer {
	b := &Buffer{client, maxAge, make(chan stocked, size/2), make(chan error)}
	client.reading.Go(b.fill)
	return b
}

// Next returns an ID that nobody else gets. It waits only while the buffer is empty, and fails with BUFFER_EMPTY when
// ctx ends, or when a request for more has failed, whose error it wraps.
func (b *Buffer) Next(ctx context.Context) (int64, error) {
	for {
		var next stocked
		select {
		case next = <-b.stock:
		default: // only now may it fail: of several cases that are ready, select takes any
			select {
			case next = <-b.stock:
			case why := <-b.lack:
				return 0, lacking(why)
			case <-ctx.Done():
				return 0, lacking(ctx.Err())
			case <-b.client.closing.Done():
				return 0, failure("CLIENT_CLOSED", "the client is closed", "", nil)
			}
		}
		if time.Since(next.asked) <= b.maxAge {
			return next.id, nil
		}
	}
}

func lacking(why error) *Error {
	return &Error{"BUFFER_EMPTY", "there is no ID in memory: " + why.Error(), "", true, shortPause, why}
}

// fill requests a batch whenever the last one has gone to the stock, which then still has as many IDs.
func (b *Buffer) fill() {
	for b.client.closing.Err() == nil {
		asked := time.Now()
		batch, err := b.client.Request(b.client.closing, cap(b.stock), "")
		if err != nil {
			b.explain(err)
			continue
		}
		for _, id := range batch.Values {
			select {
			case b.stock <- stocked{id, asked}:
			case <-b.client.closing.Done():
				return
			}
		}
	}
}

// explain gives the error to each call that waits, until it is time for another request: soon, if a retry may help.
func (b *Buffer) explain(why error) {
	pause := shortPause
	if refused := (*Error)(nil); errors.As(why, &refused) && !refused.Retryable {
		pause = maxPause
	}
	again := time.NewTimer(spread(pause))
	defer again.Stop()
	for {
		select {
		case b.lack <- why:
		case <-again.C:
			return
		case <-b.client.closing.Done():
			return
		}
	}
}
