// Package notify tells the hooks in the settings what has happened. It takes notices from the
// queue in the database and delivers each at least once, to commands and to webhooks. It signs
// messages to webhooks according to Standard Webhooks. It never holds up a writer.
//
// If a notice cannot be delivered, it is tried again after ever longer pauses, and given up
// after MaxAttempts. What is reported about a failed attempt contains no secret: only the host
// of a webhook's address, and no output of a command or a server.
//
// This package may import the root, internal/outbox and internal/jsontext.
package notify
