// Package survey defines the data of the calls that show many things at once: what
// needs a person, a run as a flight recorder, what retention removes next, the findings
// of all runs. A page for operators is drawn from them. Agents do not need them, so
// they are not in the root package.
//
// It has only types and their checks, and does no work.
//
// In all of them, times are RFC 3339, UTC, with milliseconds, and null if there is
// none. Names of durations end with _ms. Sizes are in bytes. Lists are never null. A
// caller gets an answer about his own agents. An administrator who names no owner gets
// an answer about the agents of all owners.
//
// This package may import the root package and the standard library.
package survey
