// The command load starts a daemon, sends spans to it at a steady rate, and prints what that cost
// the daemon: processor time, memory, and what it kept.
//
//	go run -mod=mod ./load --program ../../dist/ckptsidecar
//
// A trace has 20 spans: a segment of an agent, two answers of its model, two tool calls, five spans
// of a framework's structure and ten spans that have no meaning here.
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/client"
)

var (
	program  = flag.String("program", "../../dist/ckptsidecar", "the program of ckptsidecar")
	rate     = flag.Int("rate", 10_000, "spans a second")
	duration = flag.Duration("duration", time.Minute, "how long")
	batch    = flag.Int("batch", 500, "spans of one request")
	sessions = flag.Int("conversations", 50, "how many conversations go on at once")
	folder   = flag.String("dir", "", "where the database goes; a temporary folder")
)

const perTrace = 20

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func run() error {
	home, err := os.MkdirTemp(*folder, "load")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(home) }()
	socket := filepath.Join(home, "c.sock")
	cmd := exec.Command(*program, "serve", "--db", filepath.Join(home, "ckpt.db"), "--socket", socket)
	cmd.Env = append(os.Environ(), "HOME="+home, "CKPTSIDECAR_OTLP_ENABLED=true")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	agent := &client.Client{Socket: socket}
	defer agent.Close()
	for agent.Wire().Ready(context.Background()) != nil {
		time.Sleep(20 * time.Millisecond)
	}
	before, err := processorTime(cmd.Process.Pid)
	if err != nil {
		return err
	}
	began := time.Now()
	sent, slowest, err := send(filepath.Join(home, "otlp.sock"))
	if err != nil {
		return err
	}
	took := time.Since(began)
	during, err := processorTime(cmd.Process.Pid)
	if err != nil {
		return err
	}
	tools := int64(sent / perTrace * 2)
	status, steps, err := settled(agent.Wire(), tools)
	if err != nil {
		return err
	}
	after, err := processorTime(cmd.Process.Pid)
	if err != nil {
		return err
	}
	memory, err := peak(cmd.Process.Pid)
	if err != nil {
		return err
	}
	fmt.Printf("%d spans in %.1f s, %.0f a second; the slowest answer took %s\n", sent, took.Seconds(),
		float64(sent)/took.Seconds(), slowest.Round(time.Millisecond))
	fmt.Printf("processor: %.2f cores while they came, %.1f s in all (%.1f µs a span)\n",
		(during-before).Seconds()/took.Seconds(), (after - before).Seconds(),
		(after-before).Seconds()*1e6/float64(sent))
	fmt.Printf("memory: %d MiB at its peak; database: %d MiB, log %d MiB\n", memory>>20, status.Database.Bytes>>20, status.Database.WALBytes>>20)
	fmt.Printf("taken over: %+v; %d steps of %d calls\n", status.OTLP.Spans, steps, tools)
	if steps != tools || status.OTLP.Spans.Step != tools {
		return fmt.Errorf("spans were lost")
	}
	return nil
}

// settled waits until every call is a step of a run.
func settled(wire *client.Wire, want int64) (*ckpt.Status, int64, error) {
	for range 120 {
		page, err := wire.Runs(context.Background(), ckpt.RunFilter{Limit: 200})
		if err != nil {
			return nil, 0, err
		}
		steps := int64(0)
		for _, run := range page.Runs {
			steps += run.StepsEnded
		}
		if steps >= want {
			status, err := wire.Status(context.Background())
			return status, steps, err
		}
		time.Sleep(500 * time.Millisecond)
	}
	status, err := wire.Status(context.Background())
	return status, 0, err
}

// send sends spans at the rate until the time is over.
func send(socket string) (sent int, slowest time.Duration, err error) {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	http2 := &http.Client{Transport: &http.Transport{Protocols: protocols, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	bodies := make(chan []byte, 8)
	var failed atomic.Pointer[error]
	var most atomic.Int64
	var done sync.WaitGroup
	for range 4 {
		done.Go(func() {
			for body := range bodies {
				began := time.Now()
				if err := post(http2, body); err != nil {
					failed.Store(&err)
				}
				for took := int64(time.Since(began)); took > most.Load(); {
					most.Store(took)
				}
			}
		})
	}
	began := time.Now()
	for n := 0; time.Since(began) < *duration && failed.Load() == nil; n++ {
		due := began.Add(time.Duration(float64(sent) / float64(*rate) * float64(time.Second)))
		time.Sleep(time.Until(due))
		body, spans, err := made(n)
		if err != nil {
			return sent, 0, err
		}
		bodies <- body
		sent += spans
	}
	close(bodies)
	done.Wait()
	if err := failed.Load(); err != nil {
		return sent, 0, *err
	}
	return sent, time.Duration(most.Load()), nil
}

func post(http2 *http.Client, body []byte) error {
	frame := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body)))
	request, err := http.NewRequest(http.MethodPost,
		"http://localhost/opentelemetry.proto.collector.trace.v1.TraceService/Export", bytes.NewReader(append(frame, body...)))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/grpc")
	request.Header.Set("TE", "trailers")
	answer, err := http2.Do(request)
	if err != nil {
		return err
	}
	var read bytes.Buffer
	_, _ = read.ReadFrom(answer.Body)
	_ = answer.Body.Close()
	if status := answer.Trailer.Get("Grpc-Status") + answer.Header.Get("Grpc-Status"); status != "0" || read.Len() > 5 {
		return fmt.Errorf("the answer is %s %q %x", answer.Status, status, read.Bytes())
	}
	return nil
}

// made returns the nth batch.
func made(n int) (body []byte, spans int, err error) {
	list := make([]*trace.Span, 0, *batch)
	for i := range *batch / perTrace {
		list = append(list, oneTrace(n**batch/perTrace+i)...)
	}
	body, err = proto.Marshal(&collector.ExportTraceServiceRequest{ResourceSpans: []*trace.ResourceSpans{{
		Resource: &resource.Resource{Attributes: []*common.KeyValue{text("service.name", "shop"),
			text("service.version", "1.2.3"), text("telemetry.sdk.language", "go")}},
		ScopeSpans: []*trace.ScopeSpans{{Scope: &common.InstrumentationScope{Name: "agents", Version: "0.1"}, Spans: list}},
	}}})
	return body, len(list), err
}

func oneTrace(n int) (list []*trace.Span) {
	id := make([]byte, 16)
	binary.BigEndian.PutUint64(id, uint64(n)+1)
	now := uint64(time.Now().UnixNano())
	add := func(place, parent int, name string, attributes ...*common.KeyValue) {
		span := &trace.Span{TraceId: id, SpanId: spanID(n, place), Name: name, Kind: trace.Span_SPAN_KIND_INTERNAL,
			StartTimeUnixNano: now + uint64(place)*1000, EndTimeUnixNano: now + uint64(place)*1000 + 900,
			Attributes: append(attributes, text("thread.name", "main"), number("thread.id", 1), text("code.function.name", "shop.agents.run"))}
		if parent >= 0 {
			span.ParentSpanId = spanID(n, parent)
		}
		list = append(list, span)
	}
	conversation := fmt.Sprintf("conversation-%d", n%*sessions)
	for place := 10; place < 20; place++ {
		add(place, 5, "POST", text("http.request.method", "POST"), text("server.address", "api.example.com"),
			number("http.response.status_code", 200))
	}
	for place := 5; place < 10; place++ {
		add(place, 0, "RunnableSequence", text("openinference.span.kind", "CHAIN"))
	}
	for place := 1; place < 3; place++ {
		add(place, 0, "chat gpt-4o", text("gen_ai.operation.name", "chat"), text("gen_ai.provider.name", "openai"),
			text("gen_ai.request.model", "gpt-4o"), text("gen_ai.response.id", "chatcmpl-123"),
			number("gen_ai.usage.input_tokens", 1200), number("gen_ai.usage.output_tokens", 80))
	}
	for place := 3; place < 5; place++ {
		add(place, 0, "execute_tool search", text("gen_ai.operation.name", "execute_tool"), text("gen_ai.tool.name", "search"),
			text("gen_ai.tool.call.id", fmt.Sprintf("call_%d_%d", n, place)), text("gen_ai.tool.type", "function"))
	}
	add(0, -1, "invoke_agent planner", text("gen_ai.operation.name", "invoke_agent"),
		text("gen_ai.agent.name", "planner"), text("gen_ai.conversation.id", conversation))
	return list
}

func spanID(n, place int) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(n)<<8|uint64(place)+1)
}

func text(key, value string) *common.KeyValue {
	return &common.KeyValue{Key: key, Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: value}}}
}

func number(key string, value int64) *common.KeyValue {
	return &common.KeyValue{Key: key, Value: &common.AnyValue{Value: &common.AnyValue_IntValue{IntValue: value}}}
}

// processorTime returns the processor time that a process has used. It works only on Linux.
func processorTime(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

// peak returns the peak memory use of a process in bytes.
func peak(pid int) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, is := strings.CutPrefix(line, "VmHWM:"); is {
			n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("the system does not say how much memory process %d had", pid)
}
