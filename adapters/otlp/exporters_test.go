package otlp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/client"
)

// daemon is a real daemon that accepts spans.
type daemon struct {
	t            *testing.T
	wire         *client.Wire
	binary, home string
	socket, port string
	token        string
	kill         func()
	log          *said
	main         string
}

// said is the output of a daemon so far.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "otlp")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "ckptsidecar.exe")
	build := exec.Command("go", "build", "-o", binary, "./cmd/ckptsidecar")
	build.Dir, build.Env = filepath.Join("..", ".."), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

var binary string

func start(t *testing.T) *daemon {
	t.Helper()
	home, err := os.MkdirTemp("", "o") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	d := &daemon{t: t, home: home, port: freePort(t), socket: filepath.Join(home, "otlp.sock")}
	d.serve()
	token, request := ckpt.NewToken("a test")
	if _, err := d.wire.PutToken(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	d.token = token
	return d
}

// serve starts the process, the first time or after a kill.
func (d *daemon) serve() {
	t := d.t
	t.Helper()
	main := filepath.Join(d.home, "ckpt.sock")
	if runtime.GOOS == "windows" {
		main = `\\.\pipe\ckptsidecar-otlp-` + filepath.Base(d.home)
	}
	cmd := exec.Command(binary, "serve", "--db", filepath.Join(d.home, "ckpt.db"), "--socket", main)
	cmd.Env = append(os.Environ(), "HOME="+d.home, "XDG_RUNTIME_DIR="+d.home, "CKPTSIDECAR_OTLP_ENABLED=true", "CKPTSIDECAR_OTLP_LOOPBACK="+d.port)
	log := new(said)
	cmd.Stderr = log
	d.log, d.main = log, main
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	d.kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	t.Cleanup(func() {
		d.kill()
		if t.Failed() {
			t.Logf("the daemon said\n%s", log.String())
		}
	})
	agent := &client.Client{Socket: main}
	d.wire = agent.Wire()
	t.Cleanup(agent.Close)
	for d.wire.Ready(t.Context()) != nil {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("the daemon ended: %v\n%s", err, log.String())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// trace sends one conversation: an agent, two answers of its model, three tool
// calls of which one fails, and a request that has no meaning here.
func (d *daemon) trace(exporter *otlptrace.Exporter, conversation string) {
	d.t.Helper()
	ctx := d.t.Context()
	provider := trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithResource(resource.NewSchemaless(attribute.String("service.name", "shop"))))
	tracer := provider.Tracer("test")
	ctx, agent := tracer.Start(ctx, "invoke_agent planner")
	agent.SetAttributes(attribute.String("gen_ai.operation.name", "invoke_agent"), attribute.String("gen_ai.agent.name", "planner"),
		attribute.String("gen_ai.conversation.id", conversation))
	for n := range 3 {
		_, chat := tracer.Start(ctx, "chat")
		chat.SetAttributes(attribute.String("gen_ai.operation.name", "chat"), attribute.Int("gen_ai.usage.input_tokens", 100), attribute.Int("gen_ai.usage.output_tokens", 7))
		chat.End()
		_, tool := tracer.Start(ctx, "execute_tool search")
		tool.SetAttributes(attribute.String("gen_ai.operation.name", "execute_tool"), attribute.String("gen_ai.tool.name", "search"),
			attribute.String("gen_ai.tool.call.arguments", fmt.Sprintf(`{"q":"PRIVATE %d"}`, n)))
		if n == 2 {
			tool.SetStatus(codes.Error, "PRIVATE")
		}
		tool.End()
		_, request := tracer.Start(ctx, "GET")
		request.End()
	}
	agent.End()
	if err := provider.Shutdown(context.Background()); err != nil {
		d.t.Fatalf("the exporter could not send: %v", err)
	}
}

// steps waits until the conversation is a run, and returns its steps.
func (d *daemon) steps(conversation string) (*ckpt.Run, []ckpt.Step) {
	d.t.Helper()
	ref := ckpt.RunRef{Agent: "planner", Run: conversation}
	for {
		run, err := d.wire.Run(d.t.Context(), ref)
		if err == nil {
			page, err := d.wire.Steps(d.t.Context(), ref, ckpt.ListFilter{})
			if err != nil {
				d.t.Fatal(err)
			}
			return run, page.Steps
		}
		if ckpt.CodeOf(err) != ckpt.CodeNotFound {
			d.t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// holds checks that a conversation is there exactly once.
func (d *daemon) holds(conversation string, duplicates int64) {
	d.t.Helper()
	run, steps := d.steps(conversation)
	if run.Source != ckpt.SourceOTLP || len(steps) != 3 || steps[2].Status != ckpt.StepFailed || string(steps[0].Args) != "null" {
		d.t.Errorf("the run is %+v, its steps %+v", run, steps)
	}
	status, err := d.wire.Status(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	want := ckpt.SpanCounts{Step: 3, Usage: 4, Ignored: status.OTLP.Spans.Ignored, Duplicate: duplicates}
	if status.OTLP.Spans != want || want.Ignored < 3 {
		d.t.Errorf("spans: %+v, not %+v", status.OTLP.Spans, want)
	}
	d.t.Logf("sent 10 spans, %d sent twice: %d steps", duplicates, len(steps))
}

// lossy forwards requests, and loses the first answer.
func lossy(t *testing.T, network, address string, lose func(http.ResponseWriter)) (proxy string) {
	t.Helper()
	grpc := network == "unix"
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!grpc)
	protocols.SetUnencryptedHTTP2(grpc)
	transport := &http.Transport{Protocols: protocols, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	}}
	var lost atomic.Bool
	server := &http.Server{Protocols: protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		onward := r.Clone(r.Context())
		onward.URL.Scheme, onward.URL.Host, onward.RequestURI, onward.Host = "http", "localhost", "", "localhost"
		answer, err := transport.RoundTrip(onward)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = answer.Body.Close() }()
		body, _ := io.ReadAll(answer.Body)
		if lost.CompareAndSwap(false, true) {
			lose(w)
			return
		}
		for name, values := range answer.Header {
			w.Header()[name] = values
		}
		w.WriteHeader(answer.StatusCode)
		_, _ = w.Write(body)
		for name, values := range answer.Trailer {
			w.Header()[http.TrailerPrefix+name] = values
		}
	})}
	var listener net.Listener
	var err error
	if grpc {
		dir, makeErr := os.MkdirTemp("", "p")
		if makeErr != nil {
			t.Fatal(makeErr)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		listener, err = net.Listen("unix", filepath.Join(dir, "p.sock"))
	} else {
		listener, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		t.Fatal(err)
	}
	var done sync.WaitGroup
	done.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() { _ = server.Close(); done.Wait(); transport.CloseIdleConnections() })
	return listener.Addr().String()
}

func overGRPC(t *testing.T, socket string) *otlptrace.Exporter {
	t.Helper()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "unix://"+socket) // as `ckptsidecar otlp env` prints it
	t.Setenv("OTEL_EXPORTER_OTLP_INSECURE", "true")
	exporter, err := otlptracegrpc.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return exporter
}

func overHTTP(t *testing.T, port, token string) *otlptrace.Exporter {
	t.Helper()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+port)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20"+token)
	exporter, err := otlptracehttp.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return exporter
}

func needSocket(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("there is no socket on Windows")
	}
}

func TestGRPCOnTheSocket(t *testing.T) {
	needSocket(t)
	d := start(t)
	d.trace(overGRPC(t, d.socket), "talk-1")
	d.holds("talk-1", 0)
}

func TestGRPCOnTheSocketWithALostAnswer(t *testing.T) {
	needSocket(t)
	d := start(t)
	proxy := lossy(t, "unix", d.socket, func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Grpc-Status", "14") // this means UNAVAILABLE
	})
	d.trace(overGRPC(t, proxy), "talk-2")
	d.holds("talk-2", 7)
}

func TestHTTPOnThePort(t *testing.T) {
	d := start(t)
	d.trace(overHTTP(t, d.port, d.token), "talk-3")
	d.holds("talk-3", 0)
}

func TestHTTPOnThePortWithALostAnswer(t *testing.T) {
	d := start(t)
	proxy := lossy(t, "tcp", d.port, func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) })
	d.trace(overHTTP(t, proxy, d.token), "talk-4")
	d.holds("talk-4", 7)
}

func TestGRPCOnThePort(t *testing.T) {
	d := start(t)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20"+d.token)
	exporter, err := otlptracegrpc.New(t.Context(), otlptracegrpc.WithEndpoint(d.port), otlptracegrpc.WithInsecure(), otlptracegrpc.WithCompressor("gzip"))
	if err != nil {
		t.Fatal(err)
	}
	d.trace(exporter, "talk-5")
	d.holds("talk-5", 0)
}

// TestKilledAfterTheAnswer: data that was acknowledged is safe, even while it
// waits for the rest of its trace.
func TestKilledAfterTheAnswer(t *testing.T) {
	d := start(t)
	d.trace(overHTTP(t, d.port, d.token), "talk-7")
	d.kill()
	d.serve()
	d.trace(overHTTP(t, d.port, d.token), "talk-8")
	for _, conversation := range []string{"talk-7", "talk-8"} {
		if _, steps := d.steps(conversation); len(steps) != 3 {
			t.Errorf("%s has %d steps", conversation, len(steps))
		}
	}
}

// TestRevokedTokensSendNothing: unknown and revoked tokens cannot send
// anything.
func TestRevokedTokensSendNothing(t *testing.T) {
	d := start(t)
	id, _, _ := ckpt.ParseToken(d.token)
	if _, err := d.wire.RevokeToken(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	exporter := overHTTP(t, d.port, d.token)
	spans := trace.NewTracerProvider(trace.WithSyncer(exporter))
	_, span := spans.Tracer("t").Start(t.Context(), "execute_tool x")
	span.SetAttributes(attribute.String("gen_ai.operation.name", "execute_tool"))
	span.End()
	status, err := d.wire.Status(t.Context())
	if err != nil || status.OTLP.Spans.Step != 0 {
		t.Errorf("%+v, %v", status, err)
	}
}

// TestWhatIsPlantedIsNowhere: canaries in every attribute appear in no file,
// log or metric, neither in attributes that are never kept, nor as secrets in a
// name that is kept.
func TestWhatIsPlantedIsNowhere(t *testing.T) {
	needSocket(t)
	const canary, key = "CANARY-4711", "sk-proj-Zq3vT7mK9pLw2XcR5nBd8HsJ4fGy6AeU"
	d := start(t)
	provider := trace.NewTracerProvider(trace.WithSyncer(overGRPC(t, d.socket)), trace.WithResource(resource.NewSchemaless(
		attribute.String("service.name", key), attribute.String("host.name", canary))))
	tracer := provider.Tracer(canary)
	for kind, names := range map[string][]string{
		"execute_tool": {"gen_ai.tool.name", "gen_ai.tool.call.id", "gen_ai.conversation.id", "gen_ai.agent.name", "agent.name", "error.type"},
		"chat":         {"gen_ai.conversation.id", "gen_ai.agent.name", "agent.name", "error.type"},
		"invoke_agent": {"gen_ai.conversation.id", "gen_ai.agent.name", "agent.name", "error.type"},
	} {
		_, span := tracer.Start(t.Context(), kind)
		span.SetAttributes(attribute.String("gen_ai.operation.name", kind))
		for _, name := range names {
			span.SetAttributes(attribute.String(name, key))
		}
		for _, name := range []string{"gen_ai.tool.call.arguments", "gen_ai.tool.call.result", "gen_ai.tool.description", "gen_ai.input.messages", "gen_ai.output.messages",
			"gen_ai.system_instructions", "gen_ai.tool.definitions", "llm.invocation_parameters", "metadata", "user.id", "user.email", "client.address",
			"http.request.header.authorization", "exception.message", "exception.stacktrace", "ai.prompt"} {
			span.SetAttributes(attribute.String(name, canary+" "+key))
		}
		span.AddEvent(canary)
		span.RecordError(fmt.Errorf("%s", canary))
		span.SetStatus(codes.Error, canary)
		span.End()
	}
	if err := provider.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	for {
		page, err := d.wire.Runs(t.Context(), ckpt.RunFilter{})
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Runs) == 3 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", d.main)
	}}
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport}).Get("http://localhost/metrics")
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	if err != nil || !bytes.Contains(metrics, []byte(`ckptsidecar_otlp_spans_total{result="step"} 1`)) {
		t.Errorf("the metrics do not tell of the spans: %v", err)
	}
	backup := filepath.Join(d.home, "backup.db")
	if out, err := exec.Command(binary, "backup", backup, "--socket", d.main, "--db", filepath.Join(d.home, "ckpt.db")).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	texts := map[string]string{"the log": d.log.String(), "the metrics": string(metrics)}
	for _, name := range []string{"ckpt.db", "ckpt.db-wal", "backup.db"} {
		text, err := os.ReadFile(filepath.Join(d.home, name))
		if err != nil {
			t.Error(err)
		}
		texts[name] = string(text)
	}
	for name, text := range texts {
		if strings.Contains(text, canary) || strings.Contains(text, key) {
			t.Errorf("%s holds what was planted", name)
		}
	}
}

// TestContentStaysAway: the files contain no content of the spans.
func TestContentStaysAway(t *testing.T) {
	d := start(t)
	d.trace(overHTTP(t, d.port, d.token), "talk-6")
	d.holds("talk-6", 0)
	for _, name := range []string{"ckpt.db", "ckpt.db-wal"} {
		text, err := os.ReadFile(filepath.Join(d.home, name))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(text, []byte("PRIVATE")) || strings.Contains(string(text), d.token) {
			t.Errorf("%s holds what must not be kept", name)
		}
	}
}
