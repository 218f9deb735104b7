package receiver

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/endpoint"
	"github.com/ckptsidecar/ckptsidecar/internal/otlp"
	"github.com/ckptsidecar/ckptsidecar/internal/otlp/observed"
)

// recorded is a minute after the spans of testdata were made.
var recorded = time.Unix(1_790_000_000, 0).UTC().Add(time.Minute)

const goodToken = "good"

// notes is a store that records what it is asked. fails holds the answers to
// the next calls.
type notes struct {
	mu      sync.Mutex
	owners  []string
	spans   int
	fails   []error
	refused []ckpt.Refusal
	block   chan struct{}
}

func (n *notes) Observe(ctx context.Context, sc ckpt.Scope, spans []observed.Span, _ observed.Content) (*observed.Counts, error) {
	if n.block != nil {
		<-n.block
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.fails) > 0 {
		err := n.fails[0]
		n.fails = n.fails[1:]
		return nil, err
	}
	n.owners = append(n.owners, sc.Caller.Owner)
	n.spans += len(spans)
	return &observed.Counts{Steps: len(spans)}, nil
}

func (n *notes) OwnerOfToken(_ context.Context, token string) (string, error) {
	if token == goodToken {
		return "uid:777", nil
	}
	return "", ckpt.Errorf(ckpt.CodeDenied, "no")
}

func (n *notes) Refused(_ context.Context, _ ckpt.Scope, r ckpt.Refusal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refused = append(n.refused, r)
}

func (n *notes) seen() (owners string, spans int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.owners, " "), n.spans
}

// world is a receiver on a socket and on a port.
type world struct {
	t            *testing.T
	store        *notes
	receiver     *Receiver
	socket, port string
}

func serve(t *testing.T, change ...func(*Options)) *world {
	t.Helper()
	w := &world{t: t, store: &notes{}}
	o := Options{Store: w.store, Now: func() time.Time { return recorded }}
	for _, f := range change {
		f(&o)
	}
	w.receiver = New(o)
	loopback, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.port = loopback.Addr().String()
	listeners := []net.Listener{loopback}
	if runtime.GOOS != "windows" {
		folder, err := os.MkdirTemp("", "otlp") // a socket's path must be short
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(folder) })
		w.socket = filepath.Join(folder, "otlp.sock")
		socket, err := endpoint.Listen(t.Context(), endpoint.Options{Path: w.socket, SingleUser: true})
		if err != nil {
			t.Fatal(err)
		}
		listeners = append(listeners, socket)
	}
	var done sync.WaitGroup
	for _, l := range listeners {
		done.Go(func() {
			if err := w.receiver.Serve(l); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		if err := w.receiver.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		done.Wait()
	})
	return w
}

// client connects to the socket or to the port. It uses gRPC's version of HTTP
// if h2 is true.
func (w *world) client(socket, h2 bool) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!h2)
	protocols.SetUnencryptedHTTP2(h2)
	transport := &http.Transport{Protocols: protocols, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		if socket {
			return new(net.Dialer).DialContext(ctx, "unix", w.socket)
		}
		return new(net.Dialer).DialContext(ctx, "tcp", w.port)
	}}
	w.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// reply is an answer that was read to its end.
type reply struct {
	status int
	body   []byte
	header http.Header
	grpc   string // the header grpc-status
}

func (w *world) ask(client *http.Client, path string, body []byte, header map[string]string) reply {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, "http://localhost"+path, bytes.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	for name, value := range header {
		if name == "Host" {
			r.Host = value
		}
		r.Header.Set(name, value)
	}
	answer, err := client.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	status := answer.Trailer.Get("Grpc-Status")
	if status == "" {
		status = answer.Header.Get("Grpc-Status")
	}
	return reply{answer.StatusCode, text, answer.Header, status}
}

func golden(t *testing.T) []byte {
	t.Helper()
	body, err := os.ReadFile("../../otlp/testdata/genai.json")
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// emptySpans returns a body in binary form with this many empty spans.
func emptySpans(n int) []byte {
	inner := bytes.Repeat([]byte{0x12, 0}, n)
	for range 2 {
		tag := byte(0x12)
		inner = append(binary.AppendUvarint([]byte{tag}, uint64(len(inner))), inner...)
		inner[0] = tag
	}
	inner[0] = 0x0a // the field resourceSpans
	return inner
}

func packed(t *testing.T, body []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(body); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func framed(body []byte, isPacked bool) []byte {
	head := make([]byte, 5)
	if isPacked {
		head[0] = 1
	}
	binary.BigEndian.PutUint32(head[1:], uint32(len(body)))
	return append(head, body...)
}

var (
	asJSON   = map[string]string{"Content-Type": "application/json"}
	asBinary = map[string]string{"Content-Type": "application/x-protobuf"}
	asGRPC   = map[string]string{"Content-Type": "application/grpc", "TE": "trailers"}
)

func with(header map[string]string, more ...string) map[string]string {
	all := map[string]string{}
	for name, value := range header {
		all[name] = value
	}
	for i := 0; i < len(more); i += 2 {
		all[more[i]] = more[i+1]
	}
	return all
}

func needSocket(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("exporters know no pipes: there is no socket here")
	}
}

func TestTheKernelNamesTheOwnerOnTheSocket(t *testing.T) {
	needSocket(t)
	w := serve(t)
	client := w.client(true, false)
	got := w.ask(client, pathHTTP, golden(t), with(asJSON, "Authorization", "Bearer "+goodToken)) // the token is ignored on the socket
	if got.status != http.StatusOK || string(got.body) != "{}" {
		t.Fatalf("%d %s", got.status, got.body)
	}
	if got := w.ask(client, pathHTTP, packed(t, golden(t)), with(asJSON, "Content-Encoding", "gzip")); got.status != http.StatusOK {
		t.Errorf("packed: %d %s", got.status, got.body)
	}
	owners, spans := w.store.seen()
	if me := "uid:" + uidOf(t); owners != me+" "+me || spans != 8 {
		t.Errorf("%d spans of %s", spans, owners)
	}
}

func uidOf(t *testing.T) string {
	t.Helper()
	return strconv.Itoa(os.Getuid())
}

func TestTokensNameTheOwnerOnThePort(t *testing.T) {
	w := serve(t)
	client := w.client(false, false)
	good := with(asJSON, "Authorization", "Bearer "+goodToken)
	for name, c := range map[string]struct {
		header map[string]string
		status int
	}{
		"a token":            {good, http.StatusOK},
		"a token as IPv6":    {with(good, "Host", "[::1]:4318"), http.StatusOK},
		"no token":           {asJSON, http.StatusUnauthorized},
		"a wrong token":      {with(asJSON, "Authorization", "Bearer bad"), http.StatusUnauthorized},
		"another scheme":     {with(asJSON, "Authorization", "Basic "+goodToken), http.StatusUnauthorized},
		"a page":             {with(good, "Origin", "http://localhost"), http.StatusForbidden},
		"a link":             {with(good, "Referer", "http://localhost/"), http.StatusForbidden},
		"a name of others'":  {with(good, "Host", "rebound.example"), http.StatusForbidden},
		"a form":             {with(good, "Content-Type", "text/plain"), http.StatusUnsupportedMediaType},
		"an unknown packing": {with(good, "Content-Encoding", "br"), http.StatusUnsupportedMediaType},
	} {
		if got := w.ask(client, pathHTTP, golden(t), c.header); got.status != c.status {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
	for _, path := range []string{"/", "/v1/agents", "/v1/status", "/metrics", "/v1/logs", "/v1/metrics"} {
		if got := w.ask(client, path, nil, good); got.status != http.StatusNotFound {
			t.Errorf("%s: %d", path, got.status)
		}
	}
	if owners, _ := w.store.seen(); owners != "uid:777 uid:777" {
		t.Errorf("the owners are %q", owners)
	}
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	if n := len(w.store.refused); n == 0 || n > 3 { // they are recorded, but not one by one
		t.Errorf("%d refusals were recorded", n)
	}
}

func TestGRPC(t *testing.T) {
	w := serve(t)
	batch, err := otlp.Read(golden(t), otlp.Options{Form: otlp.JSON, Now: recorded})
	if err != nil || len(batch.Spans) != 4 {
		t.Fatal(batch, err)
	}
	body, err := os.ReadFile("testdata/genai.bin")
	if err != nil {
		t.Fatal(err)
	}
	client := w.client(false, true)
	good := with(asGRPC, "Authorization", "Bearer "+goodToken)
	for name, c := range map[string]struct {
		body   []byte
		header map[string]string
		status string
	}{
		"plain":          {framed(body, false), good, "0"},
		"packed":         {framed(packed(t, body), true), with(good, "Grpc-Encoding", "gzip"), "0"},
		"no token":       {framed(body, false), asGRPC, "16"},
		"nonsense":       {framed([]byte("\xff\xff"), false), good, "3"},
		"too many":       {framed(emptySpans(200_000), false), good, "8"},
		"too long":       {framed(make([]byte, otlp.MaxBody+1), false), good, "8"},
		"not packed":     {framed(body, true), with(good, "Grpc-Encoding", "gzip"), "3"},
		"a bomb":         {framed(packed(t, make([]byte, 100<<20)), true), with(good, "Grpc-Encoding", "gzip"), "8"},
		"half a message": {framed(body, false)[:50], good, "3"},
	} {
		if got := w.ask(client, pathGRPC, c.body, c.header); got.grpc != c.status {
			t.Errorf("%s: gRPC's status is %q, not %s; %d %q", name, got.grpc, c.status, got.status, got.body)
		}
	}
	if _, spans := w.store.seen(); spans != 8 {
		t.Errorf("%d spans", spans)
	}
	if got := w.ask(client, pathGRPC, framed(body, false), with(good, "Content-Type", "application/grpc+json")); got.status != http.StatusUnsupportedMediaType {
		t.Errorf("gRPC with JSON: %d", got.status)
	}
}

func TestHostileBodies(t *testing.T) {
	expect.OneThread(t)
	w := serve(t)
	client := w.client(false, false)
	good := with(asBinary, "Authorization", "Bearer "+goodToken)
	zip := with(good, "Content-Encoding", "gzip")
	for name, c := range map[string]struct {
		body   []byte
		header map[string]string
		status int
	}{
		"too many":     {emptySpans(2 << 20), good, http.StatusRequestEntityTooLarge},
		"too long":     {make([]byte, otlp.MaxBody+1), good, http.StatusRequestEntityTooLarge},
		"a bomb":       {packed(t, make([]byte, 200<<20)), zip, http.StatusRequestEntityTooLarge},
		"cut off":      {packed(t, golden(t))[:100], zip, http.StatusBadRequest},
		"not packed":   {golden(t), zip, http.StatusBadRequest},
		"nonsense":     {[]byte("\xff\xff\xff\xff"), good, http.StatusBadRequest},
		"deep JSON":    {[]byte(strings.Repeat(`{"a":`, 10_000)), with(good, "Content-Type", "application/json"), http.StatusBadRequest},
		"nothing":      {nil, good, http.StatusOK},
		"empty in zip": {packed(t, nil), zip, http.StatusOK},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got := w.ask(client, pathHTTP, c.body, c.header)
		runtime.ReadMemStats(&after)
		if got.status != c.status {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 100<<20 {
			t.Errorf("%s: it took %d MiB to refuse it", name, took>>20)
		}
	}
}

// TestBusyIsWaitedFor: a late answer is better than a refusal, because the
// exporter of Node does not send again.
func TestBusyIsWaitedFor(t *testing.T) {
	w := serve(t)
	w.store.fails = []error{busy("later"), busy("later")}
	got := w.ask(w.client(false, false), pathHTTP, golden(t), with(asJSON, "Authorization", "Bearer "+goodToken))
	if _, spans := w.store.seen(); got.status != http.StatusOK || spans != 4 {
		t.Errorf("%d %s, %d spans", got.status, got.body, spans)
	}
}

func TestWhatExportersAreTold(t *testing.T) {
	for name, c := range map[string]struct {
		fail   error
		status int
		body   string
	}{
		"quota":        {ckpt.Errorf(ckpt.CodeQuota, "full"), http.StatusOK, `"rejectedSpans":"4"`},
		"storage full": {ckpt.Errorf(ckpt.CodeStorageFull, "the disk is full"), http.StatusServiceUnavailable, "disk"},
		"a mistake":    {errors.New("PRIVATE"), http.StatusInternalServerError, "internal error"},
	} {
		w := serve(t)
		w.store.fails = []error{c.fail}
		got := w.ask(w.client(false, false), pathHTTP, golden(t), with(asJSON, "Authorization", "Bearer "+goodToken))
		if got.status != c.status || !strings.Contains(strings.ReplaceAll(string(got.body), " ", ""), strings.ReplaceAll(c.body, " ", "")) || strings.Contains(string(got.body), "PRIVATE") {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
		if retry := got.header.Get("Retry-After"); (c.status == http.StatusServiceUnavailable) != (retry == "1") {
			t.Errorf("%s: Retry-After is %q", name, retry)
		}
	}
}

func TestWrongSpansOfAGoodBatch(t *testing.T) {
	w := serve(t)
	body, err := os.ReadFile("../../otlp/testdata/wrong.json")
	if err != nil {
		t.Fatal(err)
	}
	got := w.ask(w.client(false, false), pathHTTP, body, with(asJSON, "Authorization", "Bearer "+goodToken))
	if _, spans := w.store.seen(); got.status != http.StatusOK || spans != 1 || !strings.Contains(string(got.body), "rejectedSpans") {
		t.Errorf("%d %s, %d spans", got.status, got.body, spans)
	}
	if counts := w.receiver.Counts(); counts.Refused != 5 || counts.Step != 1 {
		t.Errorf("%+v", counts)
	}
}

// TestMemoryIsBounded: the bodies of one owner do not fill the memory of all
// owners, and his flood waits.
func TestMemoryIsBounded(t *testing.T) {
	w := serve(t)
	w.store.block = make(chan struct{})
	o := w.receiver.owner("uid:777")
	done := make(chan reply, 2)
	client := w.client(false, false)
	large := append(golden(t), bytes.Repeat([]byte(" "), 10<<20)...)
	go func() { done <- w.ask(client, pathHTTP, large, with(asJSON, "Authorization", "Bearer "+goodToken)) }()
	for o.bytes.TryAcquire(ownerBytes) { // until it is in the store, it may not hold any
		o.bytes.Release(ownerBytes)
		runtime.Gosched()
	}
	go func() { done <- w.ask(client, pathHTTP, golden(t), with(asJSON, "Authorization", "Bearer "+goodToken)) }()
	close(w.store.block)
	for range 2 {
		if got := <-done; got.status != http.StatusOK {
			t.Errorf("%d %s", got.status, got.body)
		}
	}
	if !o.bytes.TryAcquire(ownerBytes) {
		t.Error("memory was not given back")
	}
}

func FuzzRequests(f *testing.F) {
	f.Add(framed([]byte("x"), false), true, false)
	f.Add([]byte(`{"resourceSpans":[]}`), false, false)
	f.Add([]byte("\x1f\x8b"), false, true)
	r := New(Options{Store: &notes{}, Now: func() time.Time { return recorded }})
	f.Fuzz(func(t *testing.T, body []byte, grpc, zip bool) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, pathHTTP, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Host = "localhost"
		request.Header.Set("Authorization", "Bearer "+goodToken)
		request.Header.Set("Content-Type", "application/json")
		if grpc {
			request.URL.Path, request.ProtoMajor, request.Proto = pathGRPC, 2, "HTTP/2.0"
			request.Header.Set("Content-Type", "application/grpc")
			request.Header.Set("Grpc-Encoding", "gzip")
		}
		if zip {
			request.Header.Set("Content-Encoding", "gzip")
		}
		answer := &sink{header: http.Header{}}
		r.ServeHTTP(answer, request)
		if answer.status >= 500 {
			t.Errorf("%d for %q", answer.status, body)
		}
	})
}

// sink is a ResponseWriter that keeps the status and discards the body.
type sink struct {
	header http.Header
	status int
}

func (s *sink) Header() http.Header { return s.header }

func (s *sink) Write(b []byte) (int, error) { return len(b), nil }

func (s *sink) WriteHeader(status int) { s.status = status }

func (s *sink) Flush() {}

// BenchmarkIntake measures the cost of a span without the database: reading,
// counting, decoding and translating a batch of 512.
func BenchmarkIntake(b *testing.B) {
	golden, err := os.ReadFile("testdata/genai.bin")
	if err != nil {
		b.Fatal(err)
	}
	const times = 512 / 5 // the file has five spans
	body := bytes.Repeat(golden, times)
	r := New(Options{Store: &notes{}, Now: func() time.Time { return recorded }})
	b.ReportAllocs()
	for b.Loop() {
		request, err := http.NewRequestWithContext(b.Context(), http.MethodPost, pathHTTP, bytes.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		request.Host = "localhost"
		request.Header.Set("Authorization", "Bearer "+goodToken)
		request.Header.Set("Content-Type", "application/x-protobuf")
		answer := &sink{header: http.Header{}}
		if r.ServeHTTP(answer, request); answer.status != http.StatusOK {
			b.Fatal(answer.status)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(times*5), "ns/span")
}
