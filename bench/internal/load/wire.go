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
	Step    int     `json:"step"`    // bytes that are new in each state of a growing history; 0 if all is new
	Warm    float64 `json:"warm"`    // seconds before the times count
	Seconds float64 `json:"seconds"` // seconds for which the times count
	Limit   int     `json:"limit"`   // saves of each client, instead of a time; 0 for none
}

// Answer is one line of a driver. The first line says that it is ready.
type Answer struct {
	Ready   bool    `json:"ready,omitempty"`
	Version string  `json:"version,omitempty"` // of the driven system, if the driver knows it
	Error   string  `json:"error,omitempty"`
	Saves   int     `json:"saves,omitempty"`   // all acknowledged saves, including those outside the counted time
	Seconds float64 `json:"seconds,omitempty"` // for which the times counted
	Micros  []int64 `json:"micros,omitempty"`  // how long each save took that ended in that time
}

// Counted returns for how long the times count.
func (o Order) Counted() time.Duration { return seconds(o.Seconds) }

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// Serve is the driver's side: it carries out orders until in ends.
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
