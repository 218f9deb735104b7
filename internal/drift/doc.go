// Package drift finds agents that go in circles, make no progress, slow down,
// overspend, or lose their state.
//
// This package may import the root package.
package drift
