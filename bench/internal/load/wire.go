package load

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Order is one line to a driver: let clients save for a while.
type Order struct {
	Clients int     `json:"clients"`
	Size    int     `json:"size"`    // bytes of a state
	Step    int     `json:"step"`    // bytes that are new in each state of a growing history; 0 where all is new
	Warm    float64 `json:"warm"`    // seconds before the times count
	Seconds float64 `json:"seconds"` // seconds for which they count
	Limit   int     `json:"limit"`   // saves of each client, instead of a time; 0 for none
}

// Answer is one line of a driver. The first says that it is ready.
type Answer struct {
	Ready   bool    `json:"ready,omitempty"`
	Version string  `json:"version,omitempty"` // of what is driven, where the driver knows it
	Error   string  `json:"error,omitempty"`
	Saves   int     `json:"saves,omitempty"`   // all that were acknowledged, also while the times did not count
	Seconds float64 `json:"seconds,omitempty"` // for which they counted
	Micros  []int64 `json:"micros,omitempty"`  // how long each save took that ended in that time
}

// Counted is for how long the times count.
func (o Order) Counted() time.Duration { return seconds(o.Seconds) }

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// Serve is the driver's side: it answers orders until in ends.
func Serve(ctx context.Context, in io.Reader, out io.Writer, store Store, corpus []byte) error {
	say := json.NewEncoder(out)
	if err := say.Encode(Answer{Ready: true, Version: store.Version()}); err != nil {
		return err
	}
	loop := Loop{Store: store, Source: NewSource(corpus)}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var order Order
		if err := json.Unmarshal(lines.Bytes(), &order); err != nil {
			return fmt.Errorf("an order cannot be read: %w", err)
		}
		answer, err := loop.Run(ctx, order)
		if err != nil {
			answer = &Answer{Error: err.Error()}
		}
		if err := say.Encode(answer); err != nil {
			return err
		}
	}
	return lines.Err()
}
