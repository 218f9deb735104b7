// The command bench measures the same work against what people would use
// instead of ckptsidecar: saves of states that are durable when they are
// acknowledged. `make bench-peers` in the folder above runs it.
//
// It is a module of its own, so that none of the peers' libraries is in the
// product's graph. The product's program is built from its own module; only its
// Go client, which makes the work, is built here.
//
// # How it measures
//
// One round after the other, in a round one kind of work after the other, and
// for each of them one system after the other for about a second, beginning
// with another one each time. All systems run on the same disk. Those whose turn
// it is not are stopped (SIGSTOP), with all their processes. Before each turn
// the disk settles. Each round begins with empty systems. What counts is the
// median of the rounds, and for ratios the median of the ratios inside a round.
//
// Before that, strace counts how often each system flushes while one client
// saves; one that flushes less often than it acknowledges is left out.
//
// # The packages
//
// machine is a command of its own: it measures the product alone, on one machine.
//
// internal/figures has statistics and bars, internal/load the states and the
// loop of the clients, internal/drivers the clients of systems that have one in
// Go (the product's is internal/ours), internal/systems how each is found, installed, started and stopped, and
// internal/host processes and disks. This package may import all of them.
package main
