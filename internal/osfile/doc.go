// Package osfile writes and opens files safely: completely or not at all, flushed, and never through a link that
// another user has planted. It is the only place for this, so that each rule about files is written once.
//
// Most of the care is for a process of root. If root works in a folder of another user, that user can put a link in any
// place at any moment. The rules:
//
//   - A file is written beside its place under a random name, gets its mode and owner through its handle, is flushed,
//     and is then renamed (Write, Fill). A rename replaces a link and does not follow it.
//   - A file that must be opened in its place is opened without following a link, and must be a plain file with one
//     name (OpenPlain).
//   - If much is to be done in such a folder, the process first takes the rights of the folder's owner (Controller,
//     Owner.Become). Then a link leads only to places that its creator could reach too.
//
// Locks of files are taken here too (LockAt, Unlock). ProcessIsGone tells whether a process that a file names still runs.
//
// It may import the standard library and golang.org/x/sys only.
package osfile
