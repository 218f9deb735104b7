package daemon

// otlpSocket is where spans are taken: nowhere, because exporters know no pipes.
func otlpSocket(string) string { return "" }
