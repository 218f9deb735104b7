// Package policies sets and shows the policies of agents: the one that an agent sets itself, its
// owner's for all agents, and the daemon's. A change merges the policies again for each agent that
// it affects, and applies them to its runs, in the same transaction. The row of an agent holds its
// merged policy, where internal/db/ledger reads it.
//
// This package may import the root package, internal/db/ledger, internal/db/sqlite and
// internal/wellformed.
package policies

import "github.com/ckptsidecar/ckptsidecar/internal/db/ledger"

// Policies are the policies of a store.
type Policies struct{ core *ledger.Core }

// New makes the policies of a store.
func New(c *ledger.Core) *Policies { return &Policies{c} }
