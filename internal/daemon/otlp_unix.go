//go:build !windows

package daemon

// otlpSocket returns the path of the socket for spans, "" if there is none.
func otlpSocket(socket string) string { return beside(socket, "otlp.sock") }
