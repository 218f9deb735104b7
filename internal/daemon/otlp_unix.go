//go:build !windows

package daemon

// otlpSocket is where spans are taken, "" where there is no such place.
func otlpSocket(socket string) string { return beside(socket, "otlp.sock") }
