// Package foreign reads what other systems have saved, and makes for each run a plan of
// what to send to the daemon. It reads workflow snapshots ([Snapshots]), the folders of
// FSM loops ([FindLoops], [ReadLoop]) and checkpoints of generated code after each
// statement ([Statements]).
//
// It is pure: it reads the bytes and the fs.FS that it is given, and sends nothing. The
// same input gives the same plan, with the same ids and keys, so a second import changes
// nothing. The state of each checkpoint is the foreign file, byte for byte. What cannot be
// read becomes a [Problem] that names the file and the line, never a panic and never half
// a run.
//
// docs/adr records how words and names are mapped.
//
// This package may import the root package, internal/jsontext, internal/wellformed and the
// standard library.
package foreign
