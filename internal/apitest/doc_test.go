// Package apitest asks every call of the API as each kind of caller: the owner,
// somebody who has nothing, a neighbour whose names are the same, an
// administrator, and an owner who asks for what is not there. The server and the
// store are the real ones.
//
// TestRoutes gives the callers' identities at the seam of internal/ipc. Where the
// tests run as root, TestRoutesOfRealUsers asks all of it over a socket as users of
// the system. A call without a row in the table fails both.
//
// It is made of tests only, so nothing can import it. It may import everything of
// ours but the program.
package apitest
