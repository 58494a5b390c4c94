// Gives an order three IDs, or the next number of a sequence, and prints them:
//
//	go run . localhost:9092 id.replies.orders order-4711
//	go run . localhost:9092 id.replies.orders order-4711 invoices/2027
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"idalloc.example/order/idalloc"
)

func main() {
	if len(os.Args) != 4 && len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: go run . BROKERS REPLY_TOPIC ORDER [SEQUENCE]")
		os.Exit(2)
	}
	if err := number(context.Background(), os.Args[1], os.Args[2], os.Args[3], os.Args[4:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func number(ctx context.Context, brokers, replyTopic, order string, sequence []string) error {
	client, err := idalloc.Open(ctx, idalloc.Options{Brokers: strings.Split(brokers, ","), ReplyTopic: replyTopic})
	if err != nil {
		return err
	}
	defer client.Close()
	var batch *idalloc.Batch
	if len(sequence) == 0 {
		batch, err = client.Request(ctx, 3, order)
	} else {
		batch, err = client.Numbers(ctx, sequence[0], 1, order)
	}
	if err != nil {
		return err
	}
	fmt.Println(strings.Join(batch.Texts(), "\n"))
	return nil
}
