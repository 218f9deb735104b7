// Package notify tells hooks of the settings what has happened: it takes notices out of the
// queue in the database and delivers each at least once, to commands and to webhooks that are
// signed as Standard Webhooks says. It never holds a writer up.
//
// A notice that cannot be delivered is tried again after ever longer pauses, and is given up
// after MaxAttempts. What is told of an attempt that failed has no secret in it: no address of
// a webhook but its host, and nothing that a command or a server has said.
//
// This package may import the root, internal/outbox and internal/jsontext.
package notify
