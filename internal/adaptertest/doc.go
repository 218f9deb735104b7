// Package adaptertest is what the tests of the Go adapters share: a real daemon that
// can be killed, programs in processes of their own, and the checks that every
// adapter passes. Only tests import it. It may import the client and testenv.
package adaptertest
