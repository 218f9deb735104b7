// Package fleet has what a host ships to the engine that many hosts share, and what
// an operator reads there: batches, marks, reports. It is pure: it knows no SQL and no
// network. docs/FLEET.md says what a fleet is. The packages below this one act: pg speaks
// to the engine, lease and seal are pure as well, and host is what one host does.
//
// This package may import the standard library only.
package fleet
