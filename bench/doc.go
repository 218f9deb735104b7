// The command bench measures the same work on ckptsidecar and on the systems that people would use instead: saves of
// states that are durable when they are acknowledged. `make bench-peers` in the folder above runs it.
//
// It is a separate module, so that the libraries of the peers are not in the product's module graph. The product's
// program is built from its own module; only its Go client, which makes the work, is built here.
//
// # How it measures
//
// The comparison runs in rounds. A round goes through the kinds of work, one after the other. For each kind of work, it
// measures one system after the other for about a second each, and starts with a different system each time. All
// systems run on the same disk. Systems that are not being measured are stopped (SIGSTOP), with all their processes.
// Before each measurement the disk settles. Each round begins with empty systems. The result is the median of the
// rounds; a ratio is the median of the ratios inside a round.
//
// Before the rounds, strace counts how often each system flushes while one client saves. A system that flushes less
// often than it acknowledges is left out.
//
// # The packages
//
// machine is a separate command: it measures the product alone, on one machine.
//
// internal/figures has statistics and bars. internal/load has the states and the loop of the clients. internal/drivers
// has the clients of systems that have one in Go (the product's client is in internal/ours). internal/systems finds,
// installs, starts and stops each system. internal/host has processes and disks. This package may import all of them.
package main
