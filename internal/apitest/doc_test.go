// Package apitest sends every call of the API as each kind of caller: the
// owner, a user who has nothing, a neighbor whose names are the same, an
// administrator, and an owner who requests something that does not exist. The
// server and the store are real.
//
// TestRoutes sets the identities of the callers at the interface of
// internal/ipc. If the tests run as root, TestRoutesOfRealUsers repeats
// everything over a socket as users of the system. A call without a row in the
// table fails both tests.
//
// It contains only tests, so nothing can import it. It may import every package
// of this module except the program.
package apitest
