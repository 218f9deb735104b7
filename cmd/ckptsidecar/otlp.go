package main

import (
	"context"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
)

type otlpCmd struct {
	Env otlpEnvCmd `cmd:"" help:"Print the environment variables for OpenTelemetry exporters that send to this daemon."`
}

type otlpEnvCmd struct {
	HTTP bool `name:"http" help:"Use HTTP and the loopback port, for exporters that cannot use sockets."`
}

func (c *otlpEnvCmd) Run(ctx context.Context, a *app) error {
	status, err := a.Client().Status(ctx)
	if err != nil {
		return err
	}
	lines, err := otlpEnvironment(&status.OTLP, c.HTTP)
	if err != nil {
		return err
	}
	if a.JSON {
		return a.WriteJSON(lines)
	}
	for _, name := range []string{"OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_ENDPOINT",
		"OTEL_EXPORTER_OTLP_INSECURE", "OTEL_EXPORTER_OTLP_HEADERS"} {
		if value := lines[name]; value != "" {
			term.Printf(a.Stdout, "export %s=%s\n", name, value)
		}
	}
	if lines["OTEL_EXPORTER_OTLP_HEADERS"] != "" {
		a.Tell("replace TOKEN with a token: ckptsidecar token create")
	}
	return nil
}

// otlpEnvironment returns the environment variables that exporters need.
func otlpEnvironment(o *ckpt.OTLPStatus, byHTTP bool) (map[string]string, error) {
	switch {
	case !o.Enabled:
		return nil, cli.Usagef("the daemon does not accept spans: set otlp.enabled = true in its settings")
	case !byHTTP && o.Socket != "":
		return map[string]string{
			"OTEL_TRACES_EXPORTER":        "otlp",
			"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
			"OTEL_EXPORTER_OTLP_ENDPOINT": "unix://" + o.Socket, // three slashes, because the path begins with one
			"OTEL_EXPORTER_OTLP_INSECURE": "true",
		}, nil
	case o.Loopback == "":
		return nil, cli.Usagef("the daemon has no port for spans: set otlp.loopback = \"127.0.0.1:4318\" in its settings")
	}
	return map[string]string{
		"OTEL_TRACES_EXPORTER":        "otlp",
		"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
		"OTEL_EXPORTER_OTLP_ENDPOINT": "http://" + o.Loopback,
		"OTEL_EXPORTER_OTLP_HEADERS":  "authorization=Bearer%20TOKEN",
	}, nil
}
