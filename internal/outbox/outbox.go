// Package outbox has the types of what the store and internal/notify tell each other: notices
// that wait for hooks, and how attempts to deliver them went.
//
// This package may import the standard library only.
package outbox

import "time"

// Delivery is a notice that waits for a hook.
type Delivery struct {
	Notice   int64  `db:"notice"`
	Hook     string `db:"hook"`
	ID       string `db:"id"`
	Type     string `db:"type"`
	Body     []byte `db:"body"`
	Attempts int    `db:"attempts"` // that were made before
}

// The states of a delivery.
const (
	Pending   = "pending"
	Delivered = "delivered"
	Dead      = "dead" // given up
)

// Attempt is how an attempt went.
type Attempt struct {
	Delivery
	State string
	Next  time.Time // of a pending one
	Error string    // without anything secret
}
