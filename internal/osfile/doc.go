// Package osfile writes and opens files safely: whole or not at all, flushed, and never through a link that somebody
// else has planted. It is the one place for that, so that a rule about files is written once.
//
// A process of root is the reason for most of the care. Where root works in a folder of another user, that user may
// put a link in any place at any moment. The rules here:
//
//   - A file is written beside its place under a random name, gets its mode and owner through its handle, is flushed,
//     and is then renamed (Write, Fill). A rename replaces a link and does not follow it.
//   - A file that must be opened in its place is opened without following a link, and must be a plain file with one
//     name (OpenPlain).
//   - Where much is to be done in such a folder, the process takes the rights of the folder's owner first (Controller,
//     Owner.Become). Then a link leads nowhere that its maker could not go.
//
// It may import the standard library and golang.org/x/sys only.
package osfile
