// Package survey has the shapes of the calls that look over much at once: what
// needs a person, a run as a flight recorder, what retention removes next, the
// findings of all runs. A page for operators is drawn from them. Agents need none
// of them, so they are not in the root package.
//
// It holds shapes and their checks, and opens nothing.
//
// In all of them: times are RFC 3339, UTC, with milliseconds, and null where
// there is none. Lengths of time end with _ms. Bytes are bytes. Lists are never
// null. A caller is answered about his own agents; an administrator who names no
// owner is answered about everybody's.
//
// This package may import the root package and the standard library.
package survey
