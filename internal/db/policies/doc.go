// Package policies sets and shows the policies of agents: the one that an agent sets itself,
// its owner's for all agents, and the daemon's. A change merges them anew for every agent
// that they count for, and judges its runs, in the same transaction. What counts for an
// agent stands merged in its row, and internal/db/ledger reads it there.
//
// This package may import the root package, internal/db/ledger, internal/db/sqlite and
// internal/wellformed.
package policies

import "github.com/ckptsidecar/ckptsidecar/internal/db/ledger"

// Policies are the policies of a store.
type Policies struct{ core *ledger.Core }

// New makes the policies of a store.
func New(c *ledger.Core) *Policies { return &Policies{c} }
