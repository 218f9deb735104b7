// Package fleet defines what a host ships to the engine that many hosts share, and what
// an operator reads there: batches, marks, reports. It is pure: it uses no SQL and no
// network. docs/FLEET.md explains what a fleet is. The packages below this one do the
// work: pg speaks to the engine, and host is what one host does. lease and seal are pure
// as well.
//
// This package may import the standard library only.
package fleet
